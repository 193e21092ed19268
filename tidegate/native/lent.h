/* Columns of Polars that C reads in place. Python keeps them alive during a call (`arrow.py`, `Lent`). */
#ifndef TIDEGATE_LENT_H
#define TIDEGATE_LENT_H

#include "arrow.h"

/* `buffers` of an array: which values are known (NULL: all), then values or views, then the buffers of views. */
enum { KNOWN, VALUES, TEXTS };

static inline bool lent_known(const struct ArrowArray *column, int64_t row)
{
    const uint8_t *bits = column->buffers[KNOWN];
    int64_t at = row + column->offset;
    return bits == NULL || (bits[at >> 3] >> (at & 7) & 1) != 0;
}

static inline bool lent_boolean(const struct ArrowArray *column, int64_t row)
{
    const uint8_t *bits = column->buffers[VALUES];
    int64_t at = row + column->offset;
    return (bits[at >> 3] >> (at & 7) & 1) != 0;
}

/* The first of `length` values; to be cast to their type. Multiply the offset by their width. */
static inline const void *lent_values(const struct ArrowArray *column, int64_t width)
{
    return (const uint8_t *)column->buffers[VALUES] + column->offset * width;
}

/* A string or some bytes that are known; valid as long as the column. */
static inline const uint8_t *lent_bytes(const struct ArrowArray *column, int64_t row, int32_t *length)
{
    const view *one = (const view *)column->buffers[VALUES] + column->offset + row;
    *length = one->length;
    if (one->length <= VIEW_INLINE_BYTES)
        return one->bytes;
    return (const uint8_t *)column->buffers[TEXTS + one->place.buffer] + one->place.offset;
}

#endif
