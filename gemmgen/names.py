"""Which names a kernel can have in every language that gemmgen emits or its hosts speak."""

from __future__ import annotations

import re

#: Longer identifiers are cut or refused by some compilers.
_LONGEST = 64

_C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main bool true
false half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t quad complex imaginary NULL NAN INFINITY
MAXFLOAT HUGE_VAL HUGE_VALF
"""
_CPP = """
alignas alignof and and_eq asm atomic_cancel bitand bitor catch char8_t char16_t char32_t class co_await co_return
co_yield compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export friend
import module mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public reflexpr
reinterpret_cast requires static_assert static_cast template this thread_local throw try typeid typename using
virtual wchar_t xor xor_eq std sycl
"""
_OPENCL = """
kernel global local constant generic read_only write_only read_write pipe uniform bool half event_t queue_t
ndrange_t clk_event_t reserve_id_t sampler_t image1d_t image1d_array_t image1d_buffer_t image2d_t image2d_array_t
image2d_depth_t image3d_t barrier mem_fence read_mem_fence write_mem_fence work_group_barrier prefetch printf
vec_step shuffle shuffle2 get_work_dim get_global_size get_global_id get_local_size get_local_id get_num_groups
get_group_id get_global_offset get_enqueued_local_size get_global_linear_id get_local_linear_id get_sub_group_size
get_max_sub_group_size get_num_sub_groups get_sub_group_id get_sub_group_local_id read_imagef read_imagei
read_imageui write_imagef write_imagei write_imageui get_image_width get_image_height async_work_group_copy
wait_group_events
"""
_CUDA = """
threadIdx blockIdx blockDim gridDim warpSize dim3 cudaError_t nv_bfloat16 assert clock clock64
"""
_OWN = """
m n k m_whole n_whole k_whole rows cols a b c a_packed b_packed lda ldb ldc alpha beta workspace
stride_a stride_b stride_c a_list b_list c_list batch batch_count stream grid block shared allowed launched
groups counted most asked GEMMGEN_TENSOR_MAP
bias row_bias scale row_scale residual ldr stride_r
a_scale a_shift a_zero a_scale_k a_shift_k a_factor b_scale b_shift b_zero b_scale_k b_shift_k b_factor
syclex Matrix check work_item sums slot multiply written_here
BM BN BK MR NR TILES_M TILES_N TM TN KC MC ROWS STAGES GROUP_M CLUSTER SPLIT_K SLICES LANES_K LOAD_K
THREADS THREADS_M THREADS_N CONSUMERS PRODUCERS
"""
_MATH = """
abs acos acosh asin asinh atan atan2 atanh bitselect cbrt ceil clamp clz copysign cos cosh cospi cross degrees
distance dot erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hadd hypot ilogb isequal
isfinite isinf isnan ldexp length lgamma log log10 log1p log2 logb mad mad24 mad_hi mad_sat max min mix modf mul24
mul_hi nan nextafter normalize popcount pow pown powr radians remainder remquo rhadd rint rootn rotate round rsqrt
select sign signbit sin sincos sinh sinpi smoothstep sqrt step sub_sat tan tanh tanpi tgamma trunc upsample
canonicalize drem erfcinv erfcx erfinv fadd fdiv fdivide ffma finite fmul fromfp fromfpx fsqrt fsub gamma getpayload
j0 j1 jn llogb llrint llround lrint lround nearbyint nextdown nexttoward nextup norm norm3d norm4d normcdf normcdfinv
rcbrt rhypot rnorm rnorm3d rnorm4d roundeven scalb scalbln scalbn significand totalorder ufromfp ufromfpx y0 y1 yn
"""
#: What the headers of C's library declare that CUDA's headers include, and the macros of gcc for its systems.
_LIBRARY = """
abort aligned_alloc alloca asctime asprintf atexit atof atoi atol atoll bcmp bcopy bsearch bzero calloc clearerr ctime
daylight difftime div dprintf errno exit fclose fdopen feof ferror fflush ffs ffsl ffsll fgetc fgetpos fgets fileno
fopen fprintf fputc fputs fread free freopen fscanf fseek fsetpos ftell fwrite getc getchar getdelim getenv getline
gmtime index isalnum isalpha isascii isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
labs ldiv linux llabs lldiv localtime malloc mblen mbstowcs mbtowc memccpy memchr memcmp memcpy memmove memset mktime
nanosleep pclose perror popen putc putchar puts qsort quick_exit rand random realloc remove rename rewind rindex scanf
setbuf setenv setvbuf snprintf sprintf srand srandom sscanf stderr stdin stdout strcasecmp strcat strchr strcmp
strcoll strcpy strcspn strdup strerror strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen strpbrk
strrchr strsep strspn strstr strtod strtof strtok strtol strtold strtoll strtoul strtoull strxfrm swab system time
timezone tmpfile tmpnam toascii tolower toupper tzname tzset ungetc unix vfprintf vfscanf vprintf vscanf vsnprintf
vsprintf vsscanf wcstombs wctomb BUFSIZ EOF EXIT_FAILURE EXIT_SUCCESS FILE FILENAME_MAX FOPEN_MAX RAND_MAX SEEK_CUR
SEEK_END SEEK_SET TMP_MAX
"""
#: Functions on float and long double end in these.
_OF_MATH = (f"{name}{letter}" for name in _MATH.split() for letter in "fl")
_RESERVED = frozenset((*f"{_C} {_CPP} {_OPENCL} {_CUDA} {_OWN} {_MATH} {_LIBRARY}".split(), *_OF_MATH))
#: Families of built-ins and of macros, what the standards keep for the implementation, and the functions and macros
#: that emitted files define for themselves. Compiled where a name is first asked about, not at every start.
_FAMILIES = (
    r"__.*|_[A-Z].*|.*__.*|(u?(char|short|int|long)|float|double|half)(1|2|3|4|8|16)|u?int(ptr|max|_?(fast|least)?\d+)_t|(as|convert)_\w+|v(load|store)\w+"
    r"|(intel_)?(sub_group|work_group)_\w+|atom(ic)?_\w+|(native|half)_\w+|(CL|CLK|FLT|DBL|M|INT|UINT|cl)_\w+|(cuda|hip)\w+"
    r"|(image_)?block_read[248]?|block_load[248]?|(COPY|LOAD|STORE)(_LOCAL)?\d+|copy\d+(_from_anywhere)?|at|(load|store)\d*(_inside)?"
    r"|nibble|from_int8|and_xor|copy_pairs?\d*|fast_\w+|conjugate|c(add|mul|fma)|(GLOBAL|LOCAL|PRIVATE)_TO_\w+"
    r"|b?float(16)?_(bits_)?to_\w+|[ab]_(scale|shift|zero)_\d+(x\d+)?"
    r"|mbarrier_(init|wait|try_wait|arrive\w*)|fence_\w+|wgmma_(fence|commit_group|wait_(group|all|sums)|m64n\d+k\d+)|named_barrier_sync|barrier_(arrive|wait)|ALL_|(ALL_)?(INT_)?ACC"
    r"|setmaxnreg_(inc|dec)|griddepcontrol_\w+|tma_(load|store)_\w+|cp_async_\w+"
    r"|st(matrix_x4|_shared_\w+)(_trans)?|cluster_(sync(_relaxed)?|arrive|wait)|map_shared_rank|shared_address"
    r"|swizzled_address|prefetch_tensormap|(own_)?matrix_descriptor(_\d+b)?|make_tensor_map|(blocks|clustered)_at_once"
    r"|[abc](_end)?_map(_made)?|CU\w+|tiles_(full|empty)|packed_(vectors|block|read)"
    r"|OF_EACH_LANE|(load|read|prefetch)_(vnni_|transposed_)?\d+x\d+|load_(fragment|elements)"
    r"|mfma_\d+x\d+x\d+|mma_m\d+n\d+k\d+|ldmatrix_\w+|cvt_rna_tf32|tf32_(high|low(_finite)?)"
)


#: Words of names that change places with a matrix and its transpose.
_PAIRS = (
    ("a", "b"),
    ("m", "n"),
    ("row", "col"),
    ("rows", "cols"),
    ("row0", "col0"),
    ("lda", "ldb"),
    ("down", "across"),
)
_TRANSPOSED = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}}


def transposed(name: str) -> str:
    """What a name of the product C = A B is called in C^T = B^T A^T: `a_scale` is `b_scale`, `c_row` is `c_col`."""
    return "_".join(_TRANSPOSED.get(word, word) for word in name.split("_"))


def name_problem(name: str) -> str | None:
    """What is wrong with a kernel's name, or None."""
    if len(name) > _LONGEST:
        return f"name {name[:_LONGEST] + '...'!r} has {len(name)} > {_LONGEST} characters: give a shorter one"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return f"name {name!r} is no identifier: use letters, digits and _, and no digit first"
    if name in _RESERVED or re.fullmatch(_FAMILIES, name):
        return (
            f"name {name!r} is taken by C, C++, OpenCL C, CUDA or gemmgen: give another, such as `my_{name.strip('_')}`"
        )
    return None
