//: at
// So many bytes into a matrix.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}
