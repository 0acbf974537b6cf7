
// --- The device ----------------------------------------------------------------------------------

// Memory of the device that stays from call to call: to make it anew takes longer than to use it.
struct workspace {
    cl_mem buffer;
    size_t bytes;
};
enum { WORKSPACE_BYTES = 1 << 28 }; // what is larger goes with the call

static struct {
    enum { UNTRIED, OPEN, LEFT_BEHIND, MISSING } state;
    struct opencl cl;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    bool is_gpu;
    bool in_place; // kernels reach any memory of the process
    uint64_t local_bytes, vector_bytes;
    char *extensions; // a blank before and after each
    struct workspace workspaces[2];
} device;

static struct {
    const char *library, *name, *cache;
    double small;
    bool verbose;
} settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    flockfile(stderr);
    fputs("gemmgen_blas: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
}

// From now on everything is computed by loops.
static void give_up(const char *why)
{
    device.state = MISSING;
    say("%s: products are computed by plain loops on the host", why);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    // The threads of the OpenCL runtime stayed with the parent.
    if (device.state == OPEN) {
        device.state = LEFT_BEHIND;
    }
    pthread_mutex_unlock(&lock);
}

// The environment, read once.
static void start(void)
{
    const char *small = getenv("GEMMGEN_BLAS_SMALL"), *verbose = getenv("GEMMGEN_BLAS_VERBOSE");
    settings.library = getenv("GEMMGEN_BLAS_OPENCL");
    settings.name = getenv("GEMMGEN_BLAS_DEVICE");
    settings.cache = getenv("GEMMGEN_BLAS_CACHE");
    settings.verbose = verbose != NULL && strcmp(verbose, "1") == 0;
    if (small != NULL) {
        char *end = NULL;
        const double value = strtod(small, &end);
        if (end == small || *end != '\0' || !(value >= 0)) {
            say("GEMMGEN_BLAS_SMALL=%s is no number of multiply-adds: taken as 0", small);
        } else {
            settings.small = value;
        }
    }
    pthread_atfork(before_fork, in_parent, in_child);
}

// What the device tells about itself, a blank before and after it; the caller's to free.
static char *device_text(const struct opencl *cl, cl_device_id id, uint32_t what)
{
    size_t size = 0;
    if (cl->GetDeviceInfo(id, what, 0, NULL, &size) != CL_SUCCESS) {
        size = 0;
    }
    char *text = calloc(1, size + 3);
    if (text == NULL) {
        return NULL;
    }
    text[0] = ' ';
    if (size > 0 && cl->GetDeviceInfo(id, what, size, text + 1, NULL) != CL_SUCCESS) {
        text[1] = '\0';
    }
    strcat(text, " ");
    return text;
}

static uint64_t device_number(const struct opencl *cl, cl_device_id id, uint32_t what)
{
    uint64_t number = 0;
    return cl->GetDeviceInfo(id, what, sizeof number, &number, NULL) == CL_SUCCESS ? number : 0;
}

// Whether the device is one that is meant.
static bool is_meant(const struct opencl *cl, cl_device_id id)
{
    if (settings.name == NULL) {
        return true;
    }
    char *name = device_text(cl, id, CL_DEVICE_NAME);
    const bool meant = name != NULL && strstr(name, settings.name) != NULL;
    free(name);
    return meant;
}

// The first device of a type that is meant.
static bool choose_device(const struct opencl *cl, uint64_t type, cl_device_id *chosen)
{
    cl_platform_id platforms[16];
    uint32_t platform_count = 0;
    if (cl->GetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS) {
        return false;
    }
    for (uint32_t i = 0; i < platform_count && i < 16; ++i) {
        cl_device_id ids[16];
        uint32_t count = 0;
        if (cl->GetDeviceIDs(platforms[i], type, 16, ids, &count) != CL_SUCCESS) {
            continue;
        }
        for (uint32_t j = 0; j < count && j < 16; ++j) {
            if (is_meant(cl, ids[j])) {
                *chosen = ids[j];
                return true;
            }
        }
    }
    return false;
}

// Looks through the libraries for a GPU, and then for any device.
static bool find_device(void)
{
    const char *paths[2] = {GEMMGEN_BLAS_OPENCL, "libOpenCL.so.1"};
    if (settings.library != NULL) {
        paths[0] = settings.library;
        paths[1] = "";
    }
    struct opencl libraries[2] = {0};
    bool loaded[2];
    for (int i = 0; i < 2; ++i) {
        loaded[i] = paths[i][0] != '\0' && load_opencl(paths[i], &libraries[i]);
    }
    if (settings.library != NULL && !loaded[0]) {
        say("GEMMGEN_BLAS_OPENCL=%s is no OpenCL library that can be loaded", settings.library);
    }
    const uint64_t types[2] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL};
    for (int pass = 0; pass < 2; ++pass) {
        for (int i = 0; i < 2; ++i) {
            if (loaded[i] && choose_device(&libraries[i], types[pass], &device.id)) {
                device.cl = libraries[i];
                return true;
            }
        }
    }
    return false;
}

// Opens the device when it is first needed. To be called under the lock, as all below.
static bool open_device(void)
{
    if (device.state == LEFT_BEHIND) {
        give_up("a forked process cannot use the device that its parent opened");
    }
    if (device.state != UNTRIED) {
        return device.state == OPEN;
    }
    if (!find_device()) {
        give_up(settings.name == NULL ? "no OpenCL device found"
                                      : "no OpenCL device of the name in GEMMGEN_BLAS_DEVICE");
        return false;
    }
    const struct opencl *cl = &device.cl;
    int32_t error = CL_SUCCESS;
    device.context = cl->CreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    if (error == CL_SUCCESS) {
        device.queue = cl->CreateCommandQueue(device.context, device.id, 0, &error);
    }
    device.extensions = device_text(cl, device.id, CL_DEVICE_EXTENSIONS);
    if (error != CL_SUCCESS || device.extensions == NULL) {
        give_up("the OpenCL device could not be opened");
        return false;
    }
    const uint64_t shared = device_number(cl, device.id, CL_DEVICE_SVM_CAPABILITIES);
    device.in_place =
        cl->SetKernelArgSVMPointer != NULL && (shared & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) != 0;
    device.is_gpu = device_number(cl, device.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU;
    device.local_bytes = device_number(cl, device.id, CL_DEVICE_LOCAL_MEM_SIZE);
    device.vector_bytes =
        sizeof(float) * device_number(cl, device.id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    device.state = OPEN;
    if (settings.verbose) {
        char *name = device_text(cl, device.id, CL_DEVICE_NAME);
        say("device%s, matrices %s", name == NULL ? "" : name,
            device.in_place ? "used where they are" : "copied");
        free(name);
    }
    return true;
}
