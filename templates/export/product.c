
// --- One product ---------------------------------------------------------------------------------

// What is done to a matrix before it is multiplied; the last one transposes it, too, and is for
// complex numbers.
enum op { AS_IS, TRANSPOSED, CONJUGATED };

// C = alpha * op(A) * op(B) + beta * C, all row by row: op(A) is m x k, op(B) k x n.
struct product {
    const struct type *type;
    enum op op_a, op_b;
    int m, n, k;
    const void *alpha, *beta; // elements of the type
    const char *a, *b;
    char *c;
    int lda, ldb, ldc;
};

// How products with such ops are computed: by a kernel, which may need A or B turned around before.
struct recipe {
    enum op op_a, op_b;
    struct kernel *gemm, *turn_a, *turn_b; // the last two NULL where the matrix is taken as it is
};

struct type {
    const char *fortran_name, *cblas_name;
    size_t size;
    bool is_complex;
    const void *one;
    bool (*equals)(const void *element, int number);
    void (*multiply)(const struct product *p); // by loops
    void (*scale)(const struct product *p); // C = beta * C
    const struct recipe *recipes; // the best first; the last one has no kernel
};

// A matrix as kernels get it: in a buffer, or where it is.
struct operand {
    cl_mem buffer;
    const void *host;
    int ld;
};

struct job {
    struct operand a, b, c, turned_a, turned_b;
    cl_event done;
};

static cl_mem new_buffer(size_t bytes)
{
    int32_t error = CL_SUCCESS;
    cl_mem buffer = device.cl.CreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    return error == CL_SUCCESS ? buffer : NULL;
}

// A workspace of at least so many bytes, the caller's to release. The queue runs one thing after
// another, so that a product may take what the one before it still works on.
static cl_mem workspace_buffer(struct workspace *workspace, size_t bytes)
{
    if (workspace->bytes < bytes) {
        cl_mem buffer = new_buffer(bytes);
        if (buffer == NULL || bytes > WORKSPACE_BYTES) {
            return buffer;
        }
        if (workspace->buffer != NULL) {
            device.cl.ReleaseMemObject(workspace->buffer);
        }
        workspace->buffer = buffer;
        workspace->bytes = bytes;
    }
    device.cl.RetainMemObject(workspace->buffer);
    return workspace->buffer;
}

// Brings a matrix of so many lines to the device, unless that reaches it where it is.
static bool stage(struct operand *operand, const void *data, int lines, int length, int ld,
                  size_t size, bool is_read)
{
    // Kernels hold a complex number in a vector, which asks for more than C's alignment.
    if (device.in_place && (uintptr_t)data % size == 0) {
        operand->host = data;
        operand->ld = ld;
        return true;
    }
    const size_t origin[3] = {0, 0, 0}, region[3] = {(size_t)length * size, (size_t)lines, 1};
    operand->ld = length;
    operand->buffer = new_buffer(region[0] * region[1]);
    if (operand->buffer == NULL || !is_read) {
        return operand->buffer != NULL;
    }
    return device.cl.EnqueueWriteBufferRect(device.queue, operand->buffer, true, origin, origin,
                                            region, region[0], 0, (size_t)ld * size, 0, data, 0,
                                            NULL, NULL) == CL_SUCCESS;
}

// Copies C back: its own elements, not what lies between its lines.
static bool fetch(const struct product *p, const struct operand *c)
{
    const size_t size = p->type->size, origin[3] = {0, 0, 0};
    const size_t region[3] = {(size_t)p->n * size, (size_t)p->m, 1};
    return device.cl.EnqueueReadBufferRect(device.queue, c->buffer, true, origin, origin, region,
                                           region[0], 0, (size_t)p->ldc * size, 0, p->c, 0, NULL,
                                           NULL) == CL_SUCCESS;
}

static bool set_value(struct kernel *kernel, uint32_t index, size_t size, const void *value)
{
    return device.cl.SetKernelArg(kernel->built, index, size, value) == CL_SUCCESS;
}

// Sets a matrix and, behind it, its leading dimension.
static bool set_matrix(struct kernel *kernel, uint32_t index, const struct operand *operand)
{
    const bool is_set =
        operand->buffer != NULL
            ? set_value(kernel, index, sizeof operand->buffer, &operand->buffer)
            : device.cl.SetKernelArgSVMPointer(kernel->built, index, operand->host) == CL_SUCCESS;
    return is_set && set_value(kernel, index + 1, sizeof operand->ld, &operand->ld);
}

static bool launch(struct kernel *kernel, int rows, int columns, cl_event *done)
{
    const size_t down = ((size_t)rows + kernel->block_rows - 1) / kernel->block_rows;
    const size_t across = ((size_t)columns + kernel->block_columns - 1) / kernel->block_columns;
    const size_t group[2] = {kernel->group_columns, kernel->group_rows};
    const size_t all[2] = {across * kernel->groups_across * group[0],
                           down * kernel->groups_down * group[1]};
    return device.cl.EnqueueNDRangeKernel(device.queue, kernel->built, 2, NULL, all, group, 0, NULL,
                                          done) == CL_SUCCESS;
}

// Turns a matrix around on the device.
static bool turn(struct kernel *kernel, const struct operand *from, int lines, int length,
                 size_t size, struct workspace *workspace, struct operand *to)
{
    to->ld = lines;
    to->buffer = workspace_buffer(workspace, (size_t)lines * (size_t)length * size);
    return to->buffer != NULL && set_value(kernel, 0, sizeof lines, &lines) &&
           set_value(kernel, 1, sizeof length, &length) && set_matrix(kernel, 2, from) &&
           set_matrix(kernel, 4, to) && launch(kernel, lines, length, NULL);
}

// The first recipe for a product that the device can follow.
static const struct recipe *find_recipe(const struct product *p)
{
    for (const struct recipe *recipe = p->type->recipes; recipe->gemm != NULL; ++recipe) {
        if (recipe->op_a == p->op_a && recipe->op_b == p->op_b && is_ready(recipe->gemm) &&
            (recipe->turn_a == NULL || is_ready(recipe->turn_a)) &&
            (recipe->turn_b == NULL || is_ready(recipe->turn_b))) {
            return recipe;
        }
    }
    return NULL;
}

// Hands a product to the device. In order, so that each step finds what the one before it made.
static bool submit(const struct product *p, const struct recipe *recipe, struct job *job)
{
    const size_t size = p->type->size;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const int a_lines = a_by_rows ? p->m : p->k, a_length = a_by_rows ? p->k : p->m;
    const int b_lines = b_by_rows ? p->k : p->n, b_length = b_by_rows ? p->n : p->k;
    if (!stage(&job->a, p->a, a_lines, a_length, p->lda, size, true) ||
        !stage(&job->b, p->b, b_lines, b_length, p->ldb, size, true) ||
        !stage(&job->c, p->c, p->m, p->n, p->ldc, size, !p->type->equals(p->beta, 0))) {
        return false;
    }
    if (recipe->turn_a != NULL && !turn(recipe->turn_a, &job->a, a_lines, a_length, size,
                                        &device.workspaces[0], &job->turned_a)) {
        return false;
    }
    if (recipe->turn_b != NULL && !turn(recipe->turn_b, &job->b, b_lines, b_length, size,
                                        &device.workspaces[1], &job->turned_b)) {
        return false;
    }
    const struct operand *a = recipe->turn_a != NULL ? &job->turned_a : &job->a;
    const struct operand *b = recipe->turn_b != NULL ? &job->turned_b : &job->b;
    struct kernel *gemm = recipe->gemm;
    return set_value(gemm, 0, sizeof p->m, &p->m) && set_value(gemm, 1, sizeof p->n, &p->n) &&
           set_value(gemm, 2, sizeof p->k, &p->k) && set_value(gemm, 3, size, p->alpha) &&
           set_matrix(gemm, 4, a) && set_matrix(gemm, 6, b) && set_value(gemm, 8, size, p->beta) &&
           set_matrix(gemm, 9, &job->c) && launch(gemm, p->m, p->n, &job->done);
}

// Waits for a product, and has C where it belongs.
static bool finish(const struct product *p, const struct job *job)
{
    return device.cl.WaitForEvents(1, &job->done) == CL_SUCCESS &&
           (job->c.buffer == NULL || fetch(p, &job->c));
}

static void release(const struct job *job)
{
    const cl_mem buffers[] = {job->a.buffer, job->b.buffer, job->c.buffer, job->turned_a.buffer,
                              job->turned_b.buffer};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; ++i) {
        if (buffers[i] != NULL) {
            device.cl.ReleaseMemObject(buffers[i]);
        }
    }
    if (job->done != NULL) {
        device.cl.ReleaseEvent(job->done);
    }
}

// Computes a product on the device; false if it has not begun to. Kernels take their arguments
// under the lock; waiting is done outside of it, so that other threads may hand over theirs.
static bool multiply_on_device(const struct product *p)
{
    static bool told;
    struct job job = {0};
    bool submitted = false;
    pthread_mutex_lock(&lock);
    if (open_device()) {
        const struct recipe *recipe = find_recipe(p);
        submitted = recipe != NULL && submit(p, recipe, &job);
        if (!submitted && !told) {
            told = true;
            say("%s cannot be computed on this device, where %s: done by plain loops on the host",
                p->type->cblas_name, recipe == NULL ? "no kernel runs" : "the work was refused");
        }
    }
    pthread_mutex_unlock(&lock);
    if (submitted && !finish(p, &job)) {
        say("%s failed on the device: C is undefined", p->type->cblas_name);
    }
    release(&job);
    return submitted;
}

// Whether a matrix reaches further than kernels can count.
static bool is_wide(int lines, int length, int ld)
{
    return (int64_t)(lines - 1) * ld + length >= GEMMGEN_BLAS_SPAN;
}

// The place so many rows and columns of op(matrix) further on.
static const char *further(const char *matrix, enum op op, int rows, int columns, int ld,
                           size_t size)
{
    const ptrdiff_t lines = op == AS_IS ? rows : columns, elements = op == AS_IS ? columns : rows;
    return matrix + (lines * ld + elements) * (ptrdiff_t)size;
}

// Computes a product; one with a wide matrix in parts.
static void multiply(const struct product *p)
{
    const size_t size = p->type->size;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const bool a_is_wide = a_by_rows ? is_wide(p->m, p->k, p->lda) : is_wide(p->k, p->m, p->lda);
    const bool b_is_wide = b_by_rows ? is_wide(p->k, p->n, p->ldb) : is_wide(p->n, p->k, p->ldb);
    const bool c_is_wide = is_wide(p->m, p->n, p->ldc);
    struct product first = *p, second = *p;
    if (p->m > 1 && (c_is_wide || (a_is_wide && a_by_rows))) {
        first.m = p->m / 2;
        second.m = p->m - first.m;
        second.a = further(p->a, p->op_a, first.m, 0, p->lda, size);
        second.c = p->c + (ptrdiff_t)first.m * p->ldc * (ptrdiff_t)size;
    } else if (p->n > 1 && (c_is_wide || (b_is_wide && !b_by_rows))) {
        first.n = p->n / 2;
        second.n = p->n - first.n;
        second.b = further(p->b, p->op_b, 0, first.n, p->ldb, size);
        second.c = p->c + (ptrdiff_t)first.n * (ptrdiff_t)size;
    } else if (p->k > 1 && (a_is_wide || b_is_wide)) {
        first.k = p->k / 2;
        second.k = p->k - first.k;
        second.a = further(p->a, p->op_a, 0, first.k, p->lda, size);
        second.b = further(p->b, p->op_b, first.k, 0, p->ldb, size);
        second.beta = p->type->one;
    } else {
        const bool is_small = (double)p->m * p->n * p->k <= settings.small;
        if (is_small || !multiply_on_device(p)) {
            p->type->multiply(p);
        }
        return;
    }
    multiply(&first);
    multiply(&second);
}
