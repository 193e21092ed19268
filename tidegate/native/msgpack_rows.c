/* Columns to records of MessagePack: a map for each row, each value in the shortest way, as msgspec writes them. */
#include "columns.h"

#include <stdlib.h>

enum { SECOND = 1000000, FIXED_MAX = 15, FIXSTR_MAX = 31, HEAD_BYTES = 16, FIRST_BYTES = 1024 };

/* What is written; it grows. */
typedef struct {
    uint8_t *bytes;
    int64_t length;
    int64_t capacity;
} output;

static bool write_value(output *to, const field *type, const struct ArrowArray *from, int64_t row);

static bool reserve(output *to, int64_t more)
{
    if (LIKELY(more <= to->capacity - to->length))
        return true;
    int64_t capacity = to->capacity * 2 + more;
    uint8_t *bytes = realloc(to->bytes, (size_t)capacity);
    if (bytes == NULL)
        return false;
    to->bytes = bytes;
    to->capacity = capacity;
    return true;
}

/* ---- bytes, for which there is room ---- */

/* A first byte, and a number of so many bytes, the highest first. */
static void put_number(output *to, uint8_t first, uint64_t number, int32_t bytes)
{
    uint8_t *at = to->bytes + to->length;
    at[0] = first;
    for (int32_t i = bytes; i > 0; i--, number >>= 8)
        at[i] = (uint8_t)number;
    to->length += 1 + bytes;
}

static void put_integer(output *to, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= -32 && value <= 127)
        put_number(to, (uint8_t)value, 0, 0);
    else if (value >= 0)
        put_number(to, value <= UINT8_MAX ? 0xcc : value <= UINT16_MAX ? 0xcd : value <= UINT32_MAX ? 0xce : 0xcf, bits,
                   value <= UINT8_MAX ? 1 : value <= UINT16_MAX ? 2 : value <= UINT32_MAX ? 4 : 8);
    else
        put_number(to, value >= INT8_MIN ? 0xd0 : value >= INT16_MIN ? 0xd1 : value >= INT32_MIN ? 0xd2 : 0xd3, bits,
                   value >= INT8_MIN ? 1 : value >= INT16_MIN ? 2 : value >= INT32_MIN ? 4 : 8);
}

static void put_double(output *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    put_number(to, 0xcb, bits, 8);
}

/* The extension type -1 in the shortest of its three lengths. */
static void put_moment(output *to, int64_t micros)
{
    int64_t seconds = micros / SECOND - (micros % SECOND < 0);
    uint64_t nanos = (uint64_t)(micros - seconds * SECOND) * 1000;
    if (seconds < 0 || seconds >> 34 != 0) {
        put_number(to, 0xc7, 12, 1);
        put_number(to, 0xff, nanos, 4);
        put_number(to, (uint8_t)((uint64_t)seconds >> 56), (uint64_t)seconds & 0xffffffffffffff, 7);
        return;
    }
    bool is_short = nanos == 0 && seconds >> 32 == 0;
    put_number(to, is_short ? 0xd6 : 0xd7, 0xff, 1);
    uint64_t both = nanos << 34 | (uint64_t)seconds;
    int32_t left = is_short ? 3 : 7; /* after the first byte */
    put_number(to, (uint8_t)(both >> (8 * left)), both, left);
}

/* Of an array or a map. */
static void put_count(output *to, int64_t count, uint8_t fixed, uint8_t sized)
{
    if (count <= FIXED_MAX)
        put_number(to, (uint8_t)(fixed | count), 0, 0);
    else
        put_number(to, count <= UINT16_MAX ? sized : sized + 1, (uint64_t)count, count <= UINT16_MAX ? 2 : 4);
}

/* ---- values ---- */

static bool write_bytes(output *to, const uint8_t *from, int64_t length, bool is_text)
{
    if (!reserve(to, HEAD_BYTES + length))
        return false;
    uint8_t first = is_text ? 0xd9 : 0xc4;
    if (is_text && length <= FIXSTR_MAX)
        put_number(to, (uint8_t)(0xa0 | length), 0, 0);
    else if (length <= UINT8_MAX)
        put_number(to, first, (uint64_t)length, 1);
    else if (length <= UINT16_MAX)
        put_number(to, first + 1, (uint64_t)length, 2);
    else
        put_number(to, first + 2, (uint64_t)length, 4);
    memcpy(to->bytes + to->length, from, (size_t)length);
    to->length += length;
    return true;
}

static bool write_view(output *to, const struct ArrowArray *from, int64_t row, bool is_text)
{
    const view *found = (const view *)from->buffers[1] + row;
    const uint8_t *bytes = found->bytes;
    if (found->length > VIEW_INLINE_BYTES)
        bytes = (const uint8_t *)from->buffers[2 + found->place.buffer] + found->place.offset;
    return write_bytes(to, bytes, found->length, is_text);
}

static bool write_fields(output *to, const field *type, const struct ArrowArray *from, int64_t row)
{
    if (!reserve(to, HEAD_BYTES))
        return false;
    put_count(to, type->count, 0x80, 0xde);
    for (int32_t i = 0; i < type->count; i++) {
        const field *child = type->children + i;
        if (!write_bytes(to, (const uint8_t *)child->name, child->name_length, true) ||
            !write_value(to, child, from->children[i], row))
            return false;
    }
    return true;
}

static bool write_list(output *to, const field *type, const struct ArrowArray *from, int64_t row)
{
    const int64_t *ends = (const int64_t *)from->buffers[1] + row;
    const struct ArrowArray *items = from->children[0];
    const field *item = type->children;
    bool is_map = type->kind == MAP;
    if (!reserve(to, HEAD_BYTES))
        return false;
    put_count(to, ends[1] - ends[0], is_map ? 0x80 : 0x90, is_map ? 0xde : 0xdc);
    for (int64_t i = ends[0]; i < ends[1]; i++) {
        if (!is_map) {
            if (!write_value(to, item, items, i))
                return false;
            continue;
        }
        for (int32_t part = 0; part < item->count; part++)
            if (!write_value(to, item->children + part, items->children[part], items->offset + i))
                return false;
    }
    return true;
}

static void put_fixed(output *to, const field *type, const void *values, int64_t row)
{
    switch (type->kind) {
    case BOOLEAN:
        put_number(to, ((const uint8_t *)values)[row >> 3] >> (row & 7) & 1 ? 0xc3 : 0xc2, 0, 0);
        break;
    case TINYINT:
        put_integer(to, ((const int8_t *)values)[row]);
        break;
    case SMALLINT:
        put_integer(to, ((const int16_t *)values)[row]);
        break;
    case INT:
        put_integer(to, ((const int32_t *)values)[row]);
        break;
    case BIGINT:
        put_integer(to, ((const int64_t *)values)[row]);
        break;
    case FLOAT:
        put_double(to, ((const float *)values)[row]);
        break;
    case DOUBLE:
        put_double(to, ((const double *)values)[row]);
        break;
    default:
        put_moment(to, ((const int64_t *)values)[row]);
    }
}

/* `row` does not count those that `from` leaves out at its begin. */
static bool write_value(output *to, const field *type, const struct ArrowArray *from, int64_t row)
{
    row += from->offset;
    const uint8_t *known = from->buffers[0];
    if (!reserve(to, HEAD_BYTES))
        return false;
    if (known != NULL && (known[row >> 3] >> (row & 7) & 1) == 0) {
        put_number(to, 0xc0, 0, 0);
        return true;
    }
    switch (type->kind) {
    case STRING:
    case BINARY:
        return write_view(to, from, row, type->kind == STRING);
    case ARRAY:
    case MAP:
        return write_list(to, type, from, row);
    case STRUCT:
        return write_fields(to, type, from, row);
    default:
        put_fixed(to, type, from->buffers[1], row);
        return true;
    }
}

/* ---- a batch ---- */

static const field VALUE = {.name = "value", .name_length = 5, .kind = BINARY, .wanted = 1};
static const field VALUES = {.name = "", .kind = STRUCT, .count = 1, .children = &VALUE};

static bool write_rows(column *values, output *to, const field *record, const struct ArrowArray *rows)
{
    for (int64_t row = 0; row < rows->length; row++) {
        to->length = 0;
        if (!write_fields(to, record, rows, rows->offset + row) || to->length > TEXT_BYTES_MAX ||
            !column_put_text(values->children, to->bytes, (int32_t)to->length, to->bytes + to->length))
            return false;
        values->length++;
    }
    return true;
}

/* Encodes the rows of a struct that Polars has exported: its fields are those of `record`, with views for texts, large
 * lists, and timestamps in microseconds. Gives a struct of the values. Returns 0 where memory is missing.
 */
int32_t tg_msgpack_encode(const field *record, const struct ArrowArray *rows, struct ArrowArray *array,
                          struct ArrowSchema *schema)
{
    run of = {arena_new(columns_bytes(&VALUES, rows->length)), arena_new(0), false, false};
    output to = {malloc(FIRST_BYTES), 0, FIRST_BYTES};
    column values;
    bool done = of.owner != NULL && of.scratch != NULL && to.bytes != NULL &&
                columns_begin(&values, &VALUES, &of, rows->length) && write_rows(&values, &to, record, rows) &&
                columns_export(&values, array, schema);
    free(to.bytes);
    if (of.scratch != NULL)
        arena_release(of.scratch);
    return of.owner == NULL ? 0 : arrow_finish(of.owner, done, array, schema);
}
