
// --- The rules of the BLAS -----------------------------------------------------------------------

// Set while cblas_xerbla is called, as the reference CBLAS does: numbers of parameters are then
// those of the column-major call that a row-major one is made into.
__attribute__((weak)) int RowMajorStrg;

// A wrong parameter of a Fortran routine. A program's own function of that name takes its place.
__attribute__((weak)) void xerbla_(const char *routine, const int *parameter, size_t length)
{
    const int letters = length < 16 ? (int)length : 6;
    say("parameter %d of %.*s has an illegal value: nothing was computed", *parameter, letters,
        routine);
}

// The same for a routine of the CBLAS.
__attribute__((weak)) void cblas_xerbla(int parameter, const char *routine, const char *format, ...)
{
    // M and N, A and B change places in the product of the transposed matrices.
    static const int swapped[] = {[4] = 5, [5] = 4, [8] = 10, [9] = 11, [10] = 8, [11] = 9};
    if (RowMajorStrg && parameter < 12 && swapped[parameter] != 0) {
        parameter = swapped[parameter];
    }
    char reason[100] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    reason[strcspn(reason, "\n")] = '\0';
    say("parameter %d of %s has an illegal value%s%s: nothing was computed", parameter, routine,
        reason[0] != '\0' ? ": " : "", reason);
}

// What a letter says, or false if it says nothing.
static bool parse_op(const struct type *type, char letter, enum op *op)
{
    switch (letter) {
    case 'N':
    case 'n':
        *op = AS_IS;
        return true;
    case 'T':
    case 't':
        *op = TRANSPOSED;
        return true;
    case 'C':
    case 'c':
        *op = type->is_complex ? CONJUGATED : TRANSPOSED;
        return true;
    default:
        return false;
    }
}

static int at_least_one(int value)
{
    return value > 1 ? value : 1;
}

// C = alpha * op(A) * op(B) + beta * C, all column by column. Returns the number of the first wrong
// parameter, as Fortran counts them, or 0.
static int gemm(const struct type *type, char transa, char transb, int m, int n, int k,
                const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta,
                void *c, int ldc)
{
    enum op op_a = AS_IS, op_b = AS_IS;
    if (!parse_op(type, transa, &op_a)) {
        return 1;
    }
    if (!parse_op(type, transb, &op_b)) {
        return 2;
    }
    if (m < 0) {
        return 3;
    }
    if (n < 0) {
        return 4;
    }
    if (k < 0) {
        return 5;
    }
    if (lda < at_least_one(op_a == AS_IS ? m : k)) {
        return 8;
    }
    if (ldb < at_least_one(op_b == AS_IS ? k : n)) {
        return 10;
    }
    if (ldc < at_least_one(m)) {
        return 13;
    }

    if (m == 0 || n == 0) {
        return 0;
    }
    // What is read or written must be somewhere.
    if (alpha == NULL) {
        return 6;
    }
    if (beta == NULL) {
        return 11;
    }
    const bool is_zero = k == 0 || type->equals(alpha, 0);
    if (is_zero && type->equals(beta, 1)) {
        return 0;
    }
    if (a == NULL && !is_zero) {
        return 7;
    }
    if (b == NULL && !is_zero) {
        return 9;
    }
    if (c == NULL) {
        return 12;
    }
    // Column by column is row by row of the transposed matrices: C^T = op(B)^T * op(A)^T.
    const struct product product = {
        .type = type,
        .op_a = op_b,
        .op_b = op_a,
        .m = n,
        .n = m,
        .k = k,
        .alpha = alpha,
        .beta = beta,
        .a = b,
        .b = a,
        .c = c,
        .lda = ldb,
        .ldb = lda,
        .ldc = ldc,
    };
    if (is_zero) {
        type->scale(&product);
        return 0;
    }
    pthread_once(&once, start);
    multiply(&product);
    return 0;
}

// Values of the standard's cblas.h.
enum { CblasRowMajor = 101, CblasColMajor = 102 };
enum { CblasNoTrans = 111, CblasTrans = 112, CblasConjTrans = 113 };

static char letter_of(int trans)
{
    switch (trans) {
    case CblasNoTrans:
        return 'N';
    case CblasTrans:
        return 'T';
    case CblasConjTrans:
        return 'C';
    default:
        return '\0';
    }
}

static void cblas_gemm(const struct type *type, int layout, int transa, int transb, int m, int n,
                       int k, const void *alpha, const void *a, int lda, const void *b, int ldb,
                       const void *beta, void *c, int ldc)
{
    const char a_letter = letter_of(transa), b_letter = letter_of(transb);
    int wrong = 0;
    if (layout != CblasRowMajor && layout != CblasColMajor) {
        cblas_xerbla(1, type->cblas_name, "layout %d is neither 101 nor 102\n", layout);
    } else if (a_letter == '\0') {
        cblas_xerbla(2, type->cblas_name, "TransA %d is none of 111, 112, 113\n", transa);
    } else if (b_letter == '\0') {
        cblas_xerbla(3, type->cblas_name, "TransB %d is none of 111, 112, 113\n", transb);
    } else if (layout == CblasColMajor) {
        wrong = gemm(type, a_letter, b_letter, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    } else {
        wrong = gemm(type, b_letter, a_letter, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
    }
    if (wrong != 0) {
        RowMajorStrg = layout == CblasRowMajor;
        cblas_xerbla(wrong + 1, type->cblas_name, "%s", "");
        RowMajorStrg = 0;
    }
}

static void fortran_gemm(const struct type *type, const char *transa, const char *transb,
                         const int *m, const int *n, const int *k, const void *alpha, const void *a,
                         const int *lda, const void *b, const int *ldb, const void *beta, void *c,
                         const int *ldc)
{
    const struct {
        const void *at;
        int parameter;
    } read[] = {
        {transa, 1}, {transb, 2}, {m, 3}, {n, 4}, {k, 5}, {lda, 8}, {ldb, 10}, {ldc, 13},
    };
    for (size_t i = 0; i < sizeof read / sizeof read[0]; ++i) {
        if (read[i].at == NULL) {
            xerbla_(type->fortran_name, &read[i].parameter, strlen(type->fortran_name));
            return;
        }
    }
    const int wrong =
        gemm(type, *transa, *transb, *m, *n, *k, alpha, a, *lda, b, *ldb, beta, c, *ldc);
    if (wrong != 0) {
        xerbla_(type->fortran_name, &wrong, strlen(type->fortran_name));
    }
}
