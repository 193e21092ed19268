/* Records of Avro's binary encoding to columns: strict, and only what is certain. Any other is left over, to fastavro.
 *
 * How a record was written, and where each of its values goes, is a tree of steps that follows the writer's schema. A
 * record that is taken has the values that the readers in Python make of it, and nothing after its end. Values are read
 * in place; only texts that are needed are copied.
 */
#include "columns.h"
#include "json_numbers.h"
#include "long.h"
#include "shortest.h"

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
    int32_t scale; /* of bytes that are a decimal: how many of its digits are after the point */
    int32_t count; /* of the steps */
    const struct step *steps; /* the fields of a record, the items of a list, the types of a union */
    int64_t factor, divisor, low, high; /* what a whole number becomes, and between which it then is */
    const char *const *symbols;
    const int32_t *symbol_lengths;
    int32_t symbol_count;
    const char *const *refused; /* encoded values that are left over */
    const int32_t *refused_lengths;
    int32_t refused_count;
} step;

enum { PASSED_OVER = -1, UUID_BYTES = 36, UNITS_BYTES = 16 };

/* From here on, doubles without their sign are infinite or no numbers. */
static const uint64_t INFINITY_BITS = (uint64_t)0x7ff << 52;

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

/* A number with `scale` digits after the point, as a decimal that holds it exactly. */
static bool put_units(column *to, int128 units, int64_t scale)
{
    int32_t precision = to->type->precision;
    int64_t shift = to->type->scale - scale;
    if (shift < -DECIMAL_DIGITS_MAX || shift > precision)
        return false;
    int128 limit = (int128)power_of_ten(shift > 0 ? precision - (int32_t)shift : precision);
    int128 factor = (int128)power_of_ten((int32_t)(shift > 0 ? shift : -shift));
    if (shift < 0) {
        if (units % factor != 0)
            return false;
        units /= factor;
    }
    if (units <= -limit || units >= limit || !column_room(to))
        return false;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = shift > 0 ? units * factor : units;
    to->length++;
    return true;
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
    if (value < by->low || value > by->high)
        return NULL;
    if (to->type->kind == DECIMAL)
        return put_units(to, value, 0) ? at : NULL;
    if (!column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->values == NULL)
        return at;
    switch (to->type->kind) {
    case TINYINT:
        ((int8_t *)to->values)[row] = (int8_t)value;
        break;
    case SMALLINT:
        ((int16_t *)to->values)[row] = (int16_t)value;
        break;
    case INT:
    case DATE:
        ((int32_t *)to->values)[row] = (int32_t)value;
        break;
    case FLOAT:
        ((float *)to->values)[row] = (float)(double)value;
        break;
    case DOUBLE:
        ((double *)to->values)[row] = (double)value;
        break;
    default:
        ((int64_t *)to->values)[row] = value;
    }
    return at;
}

/* A double as the decimal that its shortest text is. */
static const uint8_t *read_shortest(column *to, const uint8_t *at, const uint8_t *end)
{
    uint64_t bits;
    if (end - at < 8)
        return NULL;
    memcpy(&bits, at, 8);
    bool negative = bits >> 63 != 0;
    bits &= UINT64_MAX >> 1;
    decimal found = {0, 0};
    if (bits >= INFINITY_BITS)
        return NULL;
    if (bits != 0)
        found = shortest_decimal(bits);
    int128 digits = negative ? -(int128)found.digits : (int128)found.digits;
    return put_units(to, digits, -(int64_t)found.exponent) ? at + 8 : NULL;
}

static const uint8_t *read_floating(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (to->type->kind == DECIMAL)
        return read_shortest(to, at, end);
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
    if (at == NULL || ((by->wire == W_STRING || to->type->kind == STRING) && !is_utf8(at, at + length)) ||
        (by->wire == W_UUID && !is_uuid(at, length)) || !column_put_text(to, at, length, end))
        return NULL;
    return at + length;
}

/* A day, a moment or a number in a text. A `Z` after a day or a moment without a time zone means nothing. */
static bool put_parsed(column *to, const uint8_t *at, const uint8_t *end)
{
    int32_t kind = to->type->kind;
    bool zoned = kind == TIMESTAMP;
    if (kind == DECIMAL) {
        number found;
        int128 units;
        if (read_number_text(at, end, &found) != end || !decimal_of(&found, to->type->precision, to->type->scale, &units))
            return false;
        return put_units(to, units, to->type->scale);
    }
    const uint8_t *stop = !zoned && at < end && end[-1] == 'Z' ? end - 1 : end;
    int32_t days;
    int64_t micros;
    if (!(kind == DATE ? read_date(at, stop, &days) : read_moment(at, stop, zoned, &micros)) || !column_room(to))
        return false;
    int64_t row = to->length++;
    if (to->values == NULL)
        return true;
    if (kind == DATE)
        ((int32_t *)to->values)[row] = days;
    else
        ((int64_t *)to->values)[row] = micros;
    return true;
}

static const uint8_t *read_string(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (to->type->kind == STRING || to->type->kind == BINARY)
        return read_text(to, by, at, end);
    int32_t length;
    at = read_length(at, end, &length);
    return at != NULL && put_parsed(to, at, at + length) ? at + length : NULL;
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

/* Of a two's complement number, the highest byte first, with `scale` digits after the point. */
static const uint8_t *read_decimal(column *to, const step *by, int64_t scale, const uint8_t *at, const uint8_t *end)
{
    int32_t length;
    at = read_bytes(by, at, end, &length);
    if (at == NULL || length < 1 || length > UNITS_BYTES)
        return NULL;
    uint128 bits = at[0] >= 0x80 ? ~(uint128)0 : 0;
    for (int32_t i = 0; i < length; i++)
        bits = bits << 8 | at[i];
    return put_units(to, (int128)bits, scale) ? at + length : NULL;
}

/* Past the index of a union with null. NULL values are left over. */
static const uint8_t *read_present(const step *by, const uint8_t *at, const uint8_t *end)
{
    if (by->null_at < 0)
        return at;
    return at < end && *at == 2 * (1 - by->null_at) ? at + 1 : NULL;
}

/* Of a record of the scale and the bytes of a decimal. */
static const uint8_t *read_scaled(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    const step *scale = by->steps, *bytes = by->steps + 1;
    int64_t found;
    if ((at = read_present(scale, at, end)) == NULL || (at = read_int(at, end, &found)) == NULL ||
        (at = read_present(bytes, at, end)) == NULL)
        return NULL;
    return read_decimal(to, bytes, found, at, end);
}

/* ---- columns ---- */

static const uint8_t *read_array(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    int64_t items, blocks = 0;
    if (!column_room(to))
        return NULL;
    while ((at = read_block(at, end, &items)) != NULL && items > 0) {
        if (blocks++ > 0 && by->refused_count > 0) /* in several blocks, a refused array has other bytes */
            return NULL;
        for (int64_t i = 0; i < items; i++)
            if ((at = read_value(to->children, by->steps, at, end)) == NULL)
                return NULL;
    }
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

static bool is_refused(const step *by, const uint8_t *at, const uint8_t *end)
{
    for (int32_t i = 0; i < by->refused_count; i++)
        if (end - at >= by->refused_lengths[i] && memcmp(at, by->refused[i], (size_t)by->refused_lengths[i]) == 0)
            return true;
    return false;
}

static const uint8_t *read_value(column *to, const step *by, const uint8_t *at, const uint8_t *end)
{
    if (by->null_at >= 0) {
        if (at == end || (*at != 0 && *at != 2))
            return NULL;
        if (*at++ == 2 * by->null_at)
            return !by->required && column_put_null(to) ? at : NULL;
    }
    if (is_refused(by, at, end))
        return NULL;
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
        return to->type->kind == DECIMAL ? read_decimal(to, by, by->scale, at, end) : read_text(to, by, at, end);
    case W_STRING:
        return read_string(to, by, at, end);
    case W_UUID:
        return read_text(to, by, at, end);
    case W_ENUM:
        return read_symbol(to, by, at, end);
    case W_ARRAY:
        return read_array(to, by, at, end);
    case W_MAP:
        return read_map(to, by, at, end);
    case W_RECORD:
        return to->type->kind == DECIMAL ? read_scaled(to, by, at, end) : read_record(to, by, at, end);
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
