/* Records of Avro's binary encoding to columns: strict, and only what is certain. Any other is left over, to fastavro.
 *
 * How a record was written, and where each of its values goes, is a tree of steps that follows the writer's schema. A
 * record that is taken has the values that fastavro makes of it, and nothing after its end. Values are read
 * in place; only texts that are needed are copied.
 */
#include "columns.h"
#include "json_numbers.h"
#include "long.h"

/* One number each with `WIRE` in `avro.py`: what a value is in the bytes. */
enum wire {
    W_NULL,
    W_BOOLEAN,
    W_INT,
    W_LONG,
    W_FLOAT,
    W_DOUBLE,
    W_BYTES,
    W_STRING,
    W_UUID,
    W_FIXED,
    W_ENUM,
    W_ARRAY,
    W_MAP,
    W_RECORD,
    W_UNION, /* of several types: never read, only passed over */
};

typedef struct step {
    int32_t wire;
    int32_t to;      /* which field of the struct around it; PASSED_OVER: of none */
    int32_t null_at; /* of a union with null that one's index, else -1 */
    int32_t required;
    int32_t size;  /* of `fixed` */
    int32_t count; /* of the steps */
    const struct step *steps; /* the fields of a record, the items of a list, the types of a union */
    int64_t factor, divisor, low, high; /* what a whole number becomes, and between which it then is */
    const char *const *symbols;
    const int32_t *symbol_lengths;
    int32_t symbol_count;
} step;

enum { PASSED_OVER = -1, UUID_BYTES = 36, UNITS_BYTES = 16 };

/* Of each entry of a map. */
static const step KEY = {.wire = W_STRING, .null_at = -1};

static const uint8_t *read_value(column *to, const step *by, const uint8_t *at, const uint8_t *end);
static const uint8_t *skip_value(const step *by, const uint8_t *at, const uint8_t *end);

/* ---- numbers and lengths ---- */

static const uint8_t *read_int(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    at = read_long(at, end, value);
    return at != NULL && *value == (int32_t)*value ? at : NULL;
}

/* How many bytes follow, which are there. */
static const uint8_t *read_length(const uint8_t *at, const uint8_t *end, int32_t *length)
{
    int64_t found;
    at = read_long(at, end, &found);
    if (at == NULL || found < 0 || found > end - at)
        return NULL;
    *length = (int32_t)found; /* values are shorter than 2 GiB */
    return at;
}

static const uint8_t *read_bytes(const step *by, const uint8_t *at, const uint8_t *end, int32_t *length)
{
    if (by->wire != W_FIXED)
        return read_length(at, end, length);
    *length = by->size;
    return end - at >= by->size ? at : NULL;
}

/* The number of items in the next block of a list, 0 at its end. Blocks that have their size before them are left over. */
static const uint8_t *read_block(const uint8_t *at, const uint8_t *end, int64_t *items)
{
    at = read_long(at, end, items);
    return at == NULL || *items < 0 || *items > end - at ? NULL : at;
}

static bool is_uuid(const uint8_t *at, int32_t length)
{
    if (length != UUID_BYTES)
        return false;
    for (int32_t i = 0; i < UUID_BYTES; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        bool digit = (at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f');
        if (dash ? at[i] != '-' : !digit)
            return false;
    }
    return true;
}

/* ---- values ---- */

static const uint8_t *read_boolean(column *to, const uint8_t *at, const uint8_t *end)
{
    if (at == end || *at > 1 || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        if (*at == 1)
            bit_set(to->values, to->length);
        else
            bit_clear(to->values, to->length);
    }
    to->length++;
    return at + 1;
}

static int64_t floor_quotient(int64_t value, int64_t divisor)
{
    return value / divisor - (value % divisor < 0);
}

static const uint8_t *read_whole(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t value;
    at = by->wire == W_INT ? read_int(at, end, &value) : read_long(at, end, &value);
    if (at == NULL || __builtin_mul_overflow(value, by->factor, &value))
        return NULL;
    if (by->divisor != 1)
        value = floor_quotient(value, by->divisor);
    if (value < by->low || value > by->high || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->values == NULL)
        return at;
    switch (to->type->kind) {
    case INT:
    case DATE:
        ((int32_t *)to->values)[row] = (int32_t)value;
        break;
    case DOUBLE:
        ((double *)to->values)[row] = (double)value;
        break;
    default:
        ((int64_t *)to->values)[row] = value;
    }
    return at;
}

static const uint8_t *read_floating(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t bytes = by->wire == W_FLOAT ? 4 : 8;
    if (end - at < bytes || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->values == NULL)
        return at + bytes;
    if (to->type->kind == FLOAT)
        memcpy((float *)to->values + row, at, 4);
    else if (bytes == 8)
        memcpy((double *)to->values + row, at, 8);
    else {
        float value;
        memcpy(&value, at, 4);
        ((double *)to->values)[row] = value;
    }
    return at + bytes;
}

static const uint8_t *read_text(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int32_t length;
    at = read_bytes(by, at, end, &length);
    if (at == NULL || (by->wire == W_STRING && !is_utf8(at, at + length)) ||
        (by->wire == W_UUID && !is_uuid(at, length)) || !column_put_text(to, at, length, end))
        return NULL;
    return at + length;
}

static const uint8_t *read_symbol(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t index;
    at = read_int(at, end, &index);
    if (at == NULL || index < 0 || index >= by->symbol_count)
        return NULL;
    const uint8_t *symbol = (const uint8_t *)by->symbols[index];
    int32_t length = by->symbol_lengths[index];
    return column_put_text(to, symbol, length, symbol + length) ? at : NULL;
}

/* Of a two's complement number, the highest byte first. */
static const uint8_t *read_decimal(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int32_t length;
    at = read_bytes(by, at, end, &length);
    if (at == NULL || length < 1 || length > UNITS_BYTES)
        return NULL;
    uint128 bits = at[0] >= 0x80 ? ~(uint128)0 : 0;
    for (int32_t i = 0; i < length; i++)
        bits = bits << 8 | at[i];
    int128 units = (int128)bits, limit = (int128)power_of_ten(to->type->precision);
    if (units <= -limit || units >= limit || !column_room(to))
        return NULL;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = units;
    to->length++;
    return at + length;
}

/* ---- columns ---- */

static const uint8_t *read_array(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t items;
    if (!column_room(to))
        return NULL;
    while ((at = read_block(at, end, &items)) != NULL && items > 0)
        for (int64_t i = 0; i < items; i++)
            if ((at = read_value(to->children, by->steps, at, end)) == NULL)
                return NULL;
    if (at != NULL)
        column_end_list(to);
    return at;
}

static const uint8_t *read_entry(column *entries, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (!column_room(entries) || (at = read_text(entries->children, &KEY, at, end)) == NULL)
        return NULL;
    at = read_value(entries->children + 1, by, at, end);
    entries->length += at != NULL;
    return at;
}

/* A record with a duplicate key is left over: its last value counts, at the first position. */
static const uint8_t *read_map(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    column *entries = to->children;
    int64_t items, first = entries->length;
    if (!column_room(to))
        return NULL;
    while ((at = read_block(at, end, &items)) != NULL && items > 0)
        for (int64_t i = 0; i < items; i++)
            if ((at = read_entry(entries, by->steps, at, end)) == NULL)
                return NULL;
    if (at == NULL || !keys_differ(entries->children, first))
        return NULL;
    column_end_list(to);
    return at;
}

/* Fields that the writer does not have are NULL. */
static const uint8_t *read_fields(column *object, const step *by, const uint8_t *at, const uint8_t *end)
{
    for (int32_t i = 0; i < by->count; i++) {
        const step *each = by->steps + i;
        at = each->to == PASSED_OVER ? skip_value(each, at, end) : read_value(object->children + each->to, each, at, end);
        if (at == NULL)
            return NULL;
    }
    return column_put_missing(object) ? at : NULL;
}

static const uint8_t *read_record(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (!column_room(to) || (at = read_fields(to, by, at, end)) == NULL)
        return NULL;
    to->length++;
    return at;
}

static const uint8_t *read_value(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (by->null_at >= 0) {
        if (at == end || (*at != 0 && *at != 2))
            return NULL;
        if (*at++ == 2 * by->null_at)
            return !by->required && column_put_null(to) ? at : NULL;
    }
    switch (by->wire) {
    case W_BOOLEAN:
        return read_boolean(to, at, end);
    case W_INT:
    case W_LONG:
        return read_whole(to, by, at, end);
    case W_FLOAT:
    case W_DOUBLE:
        return read_floating(to, by, at, end);
    case W_BYTES:
    case W_FIXED:
        return to->type->kind == DECIMAL ? read_decimal(to, by, at, end) : read_text(to, by, at, end);
    case W_STRING:
    case W_UUID:
        return read_text(to, by, at, end);
    case W_ENUM:
        return read_symbol(to, by, at, end);
    case W_ARRAY:
        return read_array(to, by, at, end);
    case W_MAP:
        return read_map(to, by, at, end);
    case W_RECORD:
        return read_record(to, by, at, end);
    default:
        return NULL;
    }
}

/* ---- values that are skipped ---- */

static const uint8_t *skip_list(const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t items;
    while ((at = read_block(at, end, &items)) != NULL && items > 0)
        for (int64_t i = 0; i < items; i++) {
            at = by->wire == W_MAP ? skip_value(&KEY, at, end) : at;
            if (at == NULL || (at = skip_value(by->steps, at, end)) == NULL)
                return NULL;
        }
    return at;
}

static const uint8_t *skip_text(const step *by, const uint8_t *at, const uint8_t *end)
{
    int32_t length;
    at = read_bytes(by, at, end, &length);
    if (at == NULL || (by->wire == W_STRING && !is_utf8(at, at + length)))
        return NULL;
    return at + length;
}

/* As strict as reading, because fastavro may reject what looks odd here. */
static const uint8_t *skip_value(const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t found;
    switch (by->wire) {
    case W_NULL:
        return at;
    case W_BOOLEAN:
        return at < end && *at <= 1 ? at + 1 : NULL;
    case W_INT:
        return read_int(at, end, &found);
    case W_LONG:
        return read_long(at, end, &found);
    case W_FLOAT:
        return end - at >= 4 ? at + 4 : NULL;
    case W_DOUBLE:
        return end - at >= 8 ? at + 8 : NULL;
    case W_ENUM:
        at = read_int(at, end, &found);
        return at != NULL && found >= 0 && found < by->symbol_count ? at : NULL;
    case W_ARRAY:
    case W_MAP:
        return skip_list(by, at, end);
    case W_RECORD:
        for (int32_t i = 0; i < by->count && at != NULL; i++)
            at = skip_value(by->steps + i, at, end);
        return at;
    case W_UNION:
        at = read_int(at, end, &found);
        return at != NULL && found >= 0 && found < by->count ? skip_value(by->steps + found, at, end) : NULL;
    default:
        return skip_text(by, at, end);
    }
}

/* ---- a batch ---- */

typedef struct {
    const step *steps;
    const uint8_t *prefix;
    int32_t skipped;
} body;

static bool read_body(column *rows, const void *how, const uint8_t *at, const uint8_t *end)
{
    const body *by = how;
    return end - at >= by->skipped && memcmp(at, by->prefix, (size_t)by->skipped) == 0 &&
           read_fields(rows, by->steps, at + by->skipped, end) == end;
}

/* Each record begins with `prefix`. */
int32_t tg_avro_decode(const field *record, const step *steps, const uint8_t *prefix, int32_t skipped,
                       const uint8_t *const *values, const int32_t *lengths, int64_t count, int64_t *left,
                       int64_t *left_count, struct ArrowArray *array, struct ArrowSchema *schema)
{
    body how = {steps, prefix, skipped};
    decoding by = {NULL, read_body, &how, false};
    return records_decode(record, &by, values, lengths, count, left, left_count, array, schema);
}
