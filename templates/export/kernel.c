
// --- Kernels, built once and kept in files -------------------------------------------------------

// A kernel and its launch geometry; whether it can be used is found out when it is first asked for.
struct kernel {
    const char *name, *text, *options;
    const char *extensions; // what the device must have, a blank after each
    uint64_t local_bytes, vector_bytes; // what it takes of local memory, and of native vectors
    enum { ANY, GPU, CPU } device; // where it is of use: others may have a better one
    size_t sub_group; // work-items of a sub-group that it is written for; 0: any
    size_t group_rows, group_columns; // work-items of a group
    size_t block_rows, block_columns; // elements of the result that some groups compute:
    size_t groups_down, groups_across;
    cl_kernel built;
    bool unusable;
};

// Whether the device has each extension of a list with a blank after each.
static bool has_extensions(const char *wanted)
{
    while (*wanted != '\0') {
        char word[64] = " ";
        const size_t length = strcspn(wanted, " ") + 1;
        if (length + 2 > sizeof word) {
            return false;
        }
        memcpy(word + 1, wanted, length);
        if (strstr(device.extensions, word) == NULL) {
            return false;
        }
        wanted += length;
    }
    return true;
}

// The first lines of what the compiler said.
static void say_build_log(const struct kernel *kernel, cl_program program)
{
    char log[2000] = "";
    size_t size = 0;
    device.cl.GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *whole = calloc(1, size + 1);
    if (whole != NULL) {
        device.cl.GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, size, whole, NULL);
        strncpy(log, whole, sizeof log - 1);
        free(whole);
    }
    say("kernel %s does not build on this device:\n%s", kernel->name, log);
}

// What a file begins with.
struct header {
    uint64_t key, checksum, size;
};

// FNV-1a: goes on from what was hashed before.
static uint64_t hash(uint64_t so_far, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; ++i) {
        so_far = (so_far ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return so_far;
}

static uint64_t hash_text(uint64_t so_far, const char *text)
{
    return text == NULL ? so_far : hash(so_far, text, strlen(text) + 1);
}

// The instructions that this machine's CPU has: devices of one name may differ in them.
static uint64_t hash_cpu(uint64_t so_far)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[4096];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) {
            so_far = hash_text(so_far, line);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return so_far;
}

// All that a binary depends on.
static uint64_t key_of(const struct kernel *kernel)
{
    const uint32_t told[] = {CL_DEVICE_NAME, CL_DRIVER_VERSION, CL_DEVICE_VERSION};
    uint64_t key = hash_cpu(UINT64_C(14695981039346656037));
    for (size_t i = 0; i < sizeof told / sizeof told[0]; ++i) {
        char *text = device_text(&device.cl, device.id, told[i]);
        key = hash_text(key, text);
        free(text);
    }
    key = hash_text(key, device.extensions);
    return hash_text(hash_text(key, kernel->options), kernel->text);
}

// Whether a file or a folder is this user's, and nobody else may write to it.
static bool is_ours(const struct stat *about)
{
    return about->st_uid == geteuid() && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Says once that kernels are not kept, and why.
static void say_unkept(const char *what, const char *why)
{
    static bool said;
    if (!said) {
        said = true;
        say("%s: %s: kernels are not kept, so that each process builds them anew", what, why);
    }
}

// The path of the folder where binaries are kept; false if nowhere.
static bool find_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (settings.cache != NULL) {
        length = snprintf(path, size, "%s", settings.cache);
    } else if (cache != NULL && cache[0] == '/') {
        length = snprintf(path, size, "%s/gemmgen_blas", cache);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(path, size, "%s/.cache/gemmgen_blas", home);
    }
    return length > 0 && (size_t)length < size;
}

// Opens that folder, made if it is missing; -1 if it can't be, or others may put files there, which
// would be executed.
static int open_folder(void)
{
    char path[4096];
    if (!find_folder(path, sizeof path)) {
        return -1;
    }
    char *name = strrchr(path, '/');
    if (name != NULL && name != path) {
        *name = '\0';
        mkdir(path, 0700);
        *name = '/';
    }
    mkdir(path, 0700);
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        say_unkept(path, strerror(errno));
        return -1;
    }
    struct stat about;
    if (fstat(folder, &about) != 0 || !is_ours(&about)) {
        say_unkept(path, "it is another user's, or others may write to it");
        close(folder);
        return -1;
    }
    return folder;
}

// A file to read that is ours: no link is followed, and no pipe waited for.
static FILE *open_ours(int folder, const char *name)
{
    const int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;
    if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && is_ours(&about)) {
        return fdopen(file, "rb");
    }
    if (file >= 0) {
        close(file);
    }
    return NULL;
}

// The program in a file; NULL if there is none, or it is not what was written there.
static cl_program load_binary(int folder, const char *name, uint64_t key)
{
    FILE *file = open_ours(folder, name);
    if (file == NULL) {
        return NULL;
    }
    struct header header = {0};
    unsigned char *binary = NULL;
    cl_program program = NULL;
    int32_t error = CL_SUCCESS, status = CL_SUCCESS;
    if (fread(&header, sizeof header, 1, file) == 1 && header.key == key &&
        header.size < INT32_MAX && (binary = malloc(header.size + 1)) != NULL &&
        fread(binary, 1, header.size + 1, file) == header.size &&
        hash(key, binary, header.size) == header.checksum) {
        const unsigned char *const_binary = binary;
        const size_t size = header.size;
        program = device.cl.CreateProgramWithBinary(device.context, 1, &device.id, &size,
                                                    &const_binary, &status, &error);
        program = error == CL_SUCCESS ? program : NULL;
    }
    free(binary);
    fclose(file);
    return program;
}

// Writes a file under another name until it is whole, one that did not exist before.
static bool write_file(int folder, const char *name, const struct header *header,
                       const unsigned char *binary)
{
    char draft[300];
    snprintf(draft, sizeof draft, "%s.%ld", name, (long)getpid());
    unlinkat(folder, draft, 0); // of a process that had this number and was ended
    const int made = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = made < 0 ? NULL : fdopen(made, "wb");
    if (file == NULL) {
        return false;
    }
    bool whole = fwrite(header, sizeof *header, 1, file) == 1 &&
                 fwrite(binary, 1, header->size, file) == header->size;
    whole = fclose(file) == 0 && whole;
    if (whole && renameat(folder, draft, folder, name) == 0) {
        return true;
    }
    const int reason = errno;
    unlinkat(folder, draft, 0);
    errno = reason;
    return false;
}

// Keeps a program. What goes wrong costs time later, no more.
static void save_binary(int folder, const char *name, uint64_t key, cl_program program)
{
    const struct opencl *cl = &device.cl;
    size_t size = 0;
    int32_t error = cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
    if (error != CL_SUCCESS || size == 0) {
        return;
    }
    unsigned char *binary = malloc(size);
    if (binary != NULL) {
        error = cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    }
    if (binary != NULL && error == CL_SUCCESS) {
        const struct header header = {key, hash(key, binary, size), size};
        if (!write_file(folder, name, &header, binary)) {
            say_unkept(name, strerror(errno));
        }
    }
    free(binary);
}

static bool build_program(const struct kernel *kernel, cl_program program)
{
    return device.cl.BuildProgram(program, 1, &device.id, kernel->options, NULL, NULL) ==
           CL_SUCCESS;
}

// The kernel's program from its text.
static cl_program build_text(const struct kernel *kernel)
{
    const struct opencl *cl = &device.cl;
    int32_t error = CL_SUCCESS;
    const char *text = kernel->text;
    cl_program program = cl->CreateProgramWithSource(device.context, 1, &text, NULL, &error);
    if (error != CL_SUCCESS) {
        return NULL;
    }
    if (!build_program(kernel, program)) {
        say_build_log(kernel, program);
        cl->ReleaseProgram(program);
        return NULL;
    }
    if (settings.verbose) {
        say("built %s", kernel->name);
    }
    return program;
}

// The same from its file, if there is one that the device takes.
static cl_program build_file(const struct kernel *kernel, int folder, const char *name,
                             uint64_t key)
{
    cl_program program = load_binary(folder, name, key);
    if (program == NULL) {
        return NULL;
    }
    if (!build_program(kernel, program)) {
        device.cl.ReleaseProgram(program);
        return NULL;
    }
    if (settings.verbose) {
        say("loaded %s", kernel->name);
    }
    return program;
}

// The kernel's program from its file, or else from its text, and then kept in the file.
static cl_program find_program(const struct kernel *kernel)
{
    const int folder = open_folder();
    if (folder < 0) {
        return build_text(kernel);
    }
    const uint64_t key = key_of(kernel);
    char name[256];
    snprintf(name, sizeof name, "%s-%016" PRIx64 ".bin", kernel->name, key);
    cl_program program = build_file(kernel, folder, name, key);
    if (program == NULL && (program = build_text(kernel)) != NULL) {
        save_binary(folder, name, key, program);
    }
    close(folder);
    return program;
}

// Whether the compiler made sub-groups of the size that a kernel is written for, as far as it says.
static bool has_its_sub_groups(const struct kernel *kernel)
{
    if (kernel->sub_group == 0 || device.cl.GetKernelSubGroupInfo == NULL) {
        return true;
    }
    const size_t group[2] = {kernel->group_columns, kernel->group_rows};
    size_t size = 0;
    if (device.cl.GetKernelSubGroupInfo(kernel->built, device.id,
                                        CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof group,
                                        group, sizeof size, &size, NULL) != CL_SUCCESS ||
        size == 0 || size == kernel->sub_group) {
        return true;
    }
    say("kernel %s is written for sub-groups of %zu, but this device compiled it for %zu",
        kernel->name, kernel->sub_group, size);
    return false;
}

// Makes a kernel; its program is let go again, as the kernel holds on to it.
static bool build(struct kernel *kernel)
{
    int32_t error = CL_SUCCESS;
    cl_program program = find_program(kernel);
    if (program == NULL) {
        return false;
    }
    kernel->built = device.cl.CreateKernel(program, kernel->name, &error);
    device.cl.ReleaseProgram(program);
    return error == CL_SUCCESS && has_its_sub_groups(kernel);
}

// Whether the device can run a kernel, which is then built.
static bool is_ready(struct kernel *kernel)
{
    if (kernel->built == NULL && !kernel->unusable) {
        const bool is_meant = kernel->device == ANY || (kernel->device == GPU) == device.is_gpu;
        const bool fits = is_meant && kernel->local_bytes <= device.local_bytes &&
                          kernel->vector_bytes <= device.vector_bytes &&
                          has_extensions(kernel->extensions);
        kernel->unusable = !fits || !build(kernel);
    }
    return !kernel->unusable;
}
