/* Values of MessagePack, read and written in place.
 *
 * Functions that read return the position after the value, or NULL for a value of another kind or one that is cut off.
 * Those without a check of their own are given at least one byte. Functions that write have room for VALUE_BYTES, or for
 * HEAD_BYTES before texts.
 */
#ifndef TIDEGATE_MSGPACK_H
#define TIDEGATE_MSGPACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VALUE_BYTES = 9, HEAD_BYTES = 5 };

/* First bytes of values. */
enum {
    FIXMAP = 0x80,
    FIXARRAY = 0x90,
    FIXSTR = 0xa0,
    NIL = 0xc0,
    NEVER_USED,
    NO,
    YES,
    BIN8,
    BIN16,
    BIN32,
    EXT8,
    EXT16,
    EXT32,
    FLOAT32,
    FLOAT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    INT8,
    INT16,
    INT32,
    INT64,
    FIXEXT1,
    FIXEXT2,
    FIXEXT4,
    FIXEXT8,
    FIXEXT16,
    STR8,
    STR16,
    STR32,
    ARRAY16,
    ARRAY32,
    MAP16,
    MAP32,
    NEGATIVE_FIXINT,
};

/* A number of this many bytes, the highest first. */
static inline uint64_t big_endian(const uint8_t *at, int32_t bytes)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < bytes; i++)
        sum = sum << 8 | at[i];
    return sum;
}

/* The number in the bytes after the first one, which are there. */
static inline const uint8_t *read_size(const uint8_t *at, const uint8_t *end, int32_t bytes, int64_t *size)
{
    if (end - at <= bytes)
        return NULL;
    *size = (int64_t)big_endian(at + 1, bytes);
    return at + 1 + bytes;
}

/* Where a str begins, and its length, of which all is there. */
static inline const uint8_t *read_str(const uint8_t *at, const uint8_t *end, int64_t *length)
{
    if (at == end)
        return NULL;
    uint8_t first = *at;
    if (first >= FIXSTR && first < NIL) {
        *length = first - FIXSTR;
        at++;
    } else if (first >= STR8 && first <= STR32)
        at = read_size(at, end, 1 << (first - STR8), length);
    else
        return NULL;
    return at == NULL || *length > end - at ? NULL : at;
}

static inline const uint8_t *read_bin(const uint8_t *at, const uint8_t *end, int64_t *length)
{
    if (*at < BIN8 || *at > BIN32)
        return NULL;
    at = read_size(at, end, 1 << (*at - BIN8), length);
    return at == NULL || *length > end - at ? NULL : at;
}

/* The number of items of an array, or of entries of a map: `fixed` and `sized` are its first bytes. */
static inline const uint8_t *read_count(const uint8_t *at, const uint8_t *end, uint8_t fixed, uint8_t sized, int64_t *count)
{
    uint8_t first = *at;
    if ((first & 0xf0) == fixed) {
        *count = first & 0x0f;
        return at + 1;
    }
    return first == sized || first == sized + 1 ? read_size(at, end, 2 << (first - sized), count) : NULL;
}

/* An integer that an int64 holds. */
static inline const uint8_t *read_integer_of(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint8_t first = *at;
    if (first < FIXMAP || first >= NEGATIVE_FIXINT) {
        *value = (int8_t)first;
        return at + 1;
    }
    if (first < UINT8 || first > INT64)
        return NULL;
    int32_t bytes = 1 << ((first - UINT8) & 3);
    if (end - at <= bytes)
        return NULL;
    uint64_t bits = big_endian(at + 1, bytes);
    if (first >= INT8) {
        int32_t unused = 64 - 8 * bytes;
        *value = (int64_t)(bits << unused) >> unused;
    } else if (bits > INT64_MAX)
        return NULL;
    else
        *value = (int64_t)bits;
    return at + 1 + bytes;
}

static inline const uint8_t *read_number_of(const uint8_t *at, const uint8_t *end, double *value)
{
    int64_t whole;
    if (*at == FLOAT64 || *at == FLOAT32) {
        int32_t bytes = *at == FLOAT64 ? 8 : 4;
        if (end - at <= bytes)
            return NULL;
        uint64_t bits = big_endian(at + 1, bytes);
        uint32_t narrow_bits = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &narrow_bits, 4);
        if (bytes == 8)
            memcpy(value, &bits, 8);
        else
            *value = narrow;
        return at + 1 + bytes;
    }
    at = read_integer_of(at, end, &whole);
    *value = at == NULL ? 0 : (double)whole;
    return at;
}

/* After a value that has no others in it. */
static inline const uint8_t *skip_scalar(const uint8_t *at, const uint8_t *end)
{
    uint8_t first = *at;
    int64_t length = 0;
    if (first < FIXMAP || first >= NEGATIVE_FIXINT || first == NIL || first == NO || first == YES)
        return at + 1;
    if (first < NIL || (first >= STR8 && first <= STR32)) {
        at = read_str(at, end, &length);
        return at == NULL ? NULL : at + length;
    }
    if (first >= BIN8 && first <= BIN32)
        at = read_size(at, end, 1 << (first - BIN8), &length);
    else if (first >= EXT8 && first <= EXT32) {
        at = read_size(at, end, 1 << (first - EXT8), &length);
        length++;
    } else if (first >= FIXEXT1 && first <= FIXEXT16) {
        length = 1 + (1 << (first - FIXEXT1));
        at++;
    } else if (first == FLOAT32 || first == FLOAT64) {
        length = first == FLOAT32 ? 4 : 8;
        at++;
    } else if (first >= UINT8 && first <= INT64) {
        length = 1 << ((first - UINT8) & 3);
        at++;
    } else
        return NULL;
    return at == NULL || length > end - at ? NULL : at + length;
}

static inline uint8_t *write_number(uint8_t *to, uint8_t first, uint64_t bits, int32_t bytes)
{
    *to++ = first;
    for (int32_t i = bytes - 1; i >= 0; i--)
        *to++ = (uint8_t)(bits >> 8 * i);
    return to;
}

/* In as few bytes as possible, as msgspec does. */
static inline uint8_t *write_integer(uint8_t *to, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= 0) {
        if (value < FIXMAP) {
            *to = (uint8_t)value;
            return to + 1;
        }
        int32_t power = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
        return write_number(to, (uint8_t)(UINT8 + power), bits, 1 << power);
    }
    if (value >= -32) {
        *to = (uint8_t)value;
        return to + 1;
    }
    int32_t power = value >= INT8_MIN ? 0 : value >= INT16_MIN ? 1 : value >= INT32_MIN ? 2 : 3;
    return write_number(to, (uint8_t)(INT8 + power), bits, 1 << power);
}

static inline uint8_t *write_double(uint8_t *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return write_number(to, FLOAT64, bits, 8);
}

static inline uint8_t *write_str_head(uint8_t *to, uint32_t length)
{
    if (length < 32) {
        *to = (uint8_t)(FIXSTR | length);
        return to + 1;
    }
    int32_t power = length <= UINT8_MAX ? 0 : length <= UINT16_MAX ? 1 : 2;
    return write_number(to, (uint8_t)(STR8 + power), length, 1 << power);
}

static inline uint8_t *write_bin_head(uint8_t *to, uint32_t length)
{
    int32_t power = length <= UINT8_MAX ? 0 : length <= UINT16_MAX ? 1 : 2;
    return write_number(to, (uint8_t)(BIN8 + power), length, 1 << power);
}

static inline uint8_t *write_array_head(uint8_t *to, uint32_t count)
{
    if (count < 16) {
        *to = (uint8_t)(FIXARRAY | count);
        return to + 1;
    }
    return write_number(to, count <= UINT16_MAX ? ARRAY16 : ARRAY32, count, count <= UINT16_MAX ? 2 : 4);
}

#endif
