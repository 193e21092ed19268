/* Records of MessagePack to columns: strict, and only what is certain. Any other record is left over, to msgspec.
 *
 * A record that is taken has exactly the values that `formats/kinds/msgpack/reader.py` makes of it (ADR 67). Values are
 * read in place, only texts that are needed are copied; nothing of the records is kept.
 */
#include "columns.h"
#include "json_names.h"
#include "json_numbers.h"
#include "msgpack.h"

enum { SKIP_DEPTH_MAX = 64, TIMESTAMP_CODE = 0xff, SECOND = 1000000 };

static const int64_t FIRST_MOMENT = -62135596800, LAST_MOMENT = 253402300799; /* in seconds */

static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end);

/* ---- values ---- */

static const uint8_t *read_boolean(column *to, const uint8_t *at)
{
    if ((*at != NO && *at != YES) || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        if (*at == YES)
            bit_set(to->values, to->length);
        else
            bit_clear(to->values, to->length);
    }
    to->length++;
    return at + 1;
}

static const uint8_t *read_whole(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t value;
    at = read_integer_of(at, end, &value);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    bool fits = true;
    switch (to->type->kind) {
    case TINYINT:
        fits = value == (int8_t)value;
        if (to->values != NULL)
            ((int8_t *)to->values)[row] = (int8_t)value;
        break;
    case SMALLINT:
        fits = value == (int16_t)value;
        if (to->values != NULL)
            ((int16_t *)to->values)[row] = (int16_t)value;
        break;
    case INT:
        fits = value == (int32_t)value;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = (int32_t)value;
        break;
    default:
        if (to->values != NULL)
            ((int64_t *)to->values)[row] = value;
    }
    return fits ? at : NULL;
}

static const uint8_t *read_floating(column *to, const uint8_t *at, const uint8_t *end)
{
    double value;
    at = read_number_of(at, end, &value);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DOUBLE) {
        if (to->values != NULL)
            ((double *)to->values)[row] = value;
        return at;
    }
    if ((value >= FLOAT_END || value <= -FLOAT_END) && !__builtin_isinf(value))
        return NULL;
    if (to->values != NULL)
        ((float *)to->values)[row] = (float)value;
    return at;
}

/* Of a text; other numbers are left over. */
static const uint8_t *read_decimal(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t length;
    number found;
    int128 units;
    at = read_str(at, end, &length);
    if (at == NULL || read_number_text(at, at + length, &found) != at + length ||
        !decimal_of(&found, to->type->precision, to->type->scale, &units) || !column_room(to))
        return NULL;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = units;
    to->length++;
    return at + length;
}

static const uint8_t *read_text(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t length;
    at = to->type->kind == BINARY ? read_bin(at, end, &length) : read_str(at, end, &length);
    if (at == NULL || (to->type->kind == STRING && !is_utf8(at, at + length)) ||
        !column_put_text(to, at, (int32_t)length, end)) /* values are shorter than 2 GiB */
        return NULL;
    return at + length;
}

/* The extension type -1, in one of its three lengths. Nanoseconds are cut off: no time becomes later. */
static const uint8_t *read_extension(const uint8_t *at, const uint8_t *end, int64_t *micros)
{
    int64_t length, seconds, nanos = 0;
    if (*at == EXT8)
        at = read_size(at, end, 1, &length);
    else {
        length = *at == FIXEXT4 ? 4 : *at == FIXEXT8 ? 8 : 0;
        at = length == 0 ? NULL : at + 1;
    }
    if (at == NULL || end - at <= length || *at != TIMESTAMP_CODE || (length != 4 && length != 8 && length != 12))
        return NULL;
    at++;
    uint64_t bits = big_endian(at, length == 12 ? 4 : (int32_t)length);
    if (length == 12) {
        nanos = (int64_t)bits;
        seconds = (int64_t)big_endian(at + 4, 8);
    } else {
        nanos = length == 8 ? (int64_t)(bits >> 34) : 0;
        seconds = (int64_t)(length == 8 ? bits & 0x3ffffffff : bits);
    }
    if (nanos >= 1000000000 || seconds < FIRST_MOMENT || seconds > LAST_MOMENT)
        return NULL;
    *micros = seconds * SECOND + nanos / 1000;
    return at + length;
}

static const uint8_t *read_calendar(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t length, micros;
    int32_t days;
    const uint8_t *text = read_str(at, end, &length);
    if (!column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DATE) {
        if (text == NULL || !read_date(text, text + length, &days))
            return NULL;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = days;
        return text + length;
    }
    if (text != NULL) {
        if (!read_moment(text, text + length, to->type->kind == TIMESTAMP, &micros))
            return NULL;
        at = text + length;
    } else if (to->type->kind != TIMESTAMP || (at = read_extension(at, end, &micros)) == NULL)
        return NULL;
    if (to->values != NULL)
        ((int64_t *)to->values)[row] = micros;
    return at;
}

/* ---- values that are skipped ---- */

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int32_t depth)
{
    if (at == NULL || at == end)
        return NULL;
    int64_t count = 0;
    const uint8_t *inside = read_count(at, end, FIXARRAY, ARRAY16, &count);
    if (inside == NULL && (inside = read_count(at, end, FIXMAP, MAP16, &count)) != NULL)
        count *= 2; /* keys and values */
    if (inside == NULL)
        return skip_scalar(at, end);
    if (depth == SKIP_DEPTH_MAX)
        return NULL;
    for (int64_t i = 0; i < count && inside != NULL; i++)
        inside = skip_value(inside, end, depth + 1);
    return inside;
}

/* ---- maps and arrays ---- */

/* The name that begins here; moves `*at` past it. NULL for a name that is not encoded in the shortest way. */
static name *find_name(vocabulary *words, const uint8_t **at, const uint8_t *end)
{
    int64_t length;
    const uint8_t *begin = *at, *text = read_str(begin, end, &length);
    if (text == NULL)
        return NULL;
    *at = text + length;
    if (length > UINT8_MAX) /* no field has such a name */
        return &words->lost;
    if (text - begin != (length < NIL - FIXSTR ? 1 : 2))
        return NULL;
    return names_find(words, begin, (int32_t)(text + length - begin));
}

/* A repeated name is left over: of msgspec's the last one counts. Each child has grown by one afterwards. */
static const uint8_t *read_members(column *object, const uint8_t *at, const uint8_t *end, bool needs_field)
{
    name *before = &object->words->start;
    int64_t count = 0, seen = 0;
    at = read_count(at, end, FIXMAP, MAP16, &count);
    for (int64_t i = 0; i < count && at != NULL; i++) {
        name *here = before->next;
        if (LIKELY(here != NULL && name_is_here(here, at, end)))
            at += here->size;
        else {
            here = find_name(object->words, &at, end);
            if (here == NULL)
                return NULL;
            before->next = here;
        }
        before = here;
        if (here->field == STRANGER) {
            at = object->run->strict ? NULL : skip_value(at, end, 0);
            continue;
        }
        column *to = object->children + here->field;
        if (UNLIKELY(to->length != object->length))
            return NULL;
        at = read_value(to, at, end);
        seen++;
    }
    if (at == NULL || (seen == 0 && needs_field && count > 0))
        return NULL;
    return LIKELY(seen == object->type->count) || column_put_missing(object) ? at : NULL;
}

static const uint8_t *read_struct(column *to, const uint8_t *at, const uint8_t *end)
{
    if (!column_room(to))
        return NULL;
    at = read_members(to, at, end, false);
    to->length += at != NULL; /* its children are not complete otherwise */
    return at;
}

static const uint8_t *read_array(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t count;
    if (!column_room(to) || (at = read_count(at, end, FIXARRAY, ARRAY16, &count)) == NULL)
        return NULL;
    for (int64_t i = 0; i < count && at != NULL; i++)
        at = read_value(to->children, at, end);
    if (at != NULL)
        column_end_list(to);
    return at;
}

static const uint8_t *read_entry(column *entries, const uint8_t *at, const uint8_t *end)
{
    if (!column_room(entries) || at == end || (at = read_text(entries->children, at, end)) == NULL)
        return NULL;
    at = read_value(entries->children + 1, at, end);
    entries->length += at != NULL;
    return at;
}

/* A repeated key is left over: its last value counts, in the first place. */
static const uint8_t *read_map(column *to, const uint8_t *at, const uint8_t *end)
{
    column *entries = to->children;
    int64_t count, first = entries->length;
    if (!column_room(to) || (at = read_count(at, end, FIXMAP, MAP16, &count)) == NULL)
        return NULL;
    for (int64_t i = 0; i < count && at != NULL; i++)
        at = read_entry(entries, at, end);
    if (at == NULL || !keys_differ(entries->children, first))
        return NULL;
    column_end_list(to);
    return at;
}

static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end)
{
    if (at == end)
        return NULL;
    if (*at == NIL)
        return column_put_null(to) ? at + 1 : NULL;
    switch (to->type->kind) {
    case BOOLEAN:
        return read_boolean(to, at);
    case TINYINT:
    case SMALLINT:
    case INT:
    case BIGINT:
        return read_whole(to, at, end);
    case FLOAT:
    case DOUBLE:
        return read_floating(to, at, end);
    case DECIMAL:
        return read_decimal(to, at, end);
    case STRING:
    case BINARY:
        return read_text(to, at, end);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        return read_calendar(to, at, end);
    case ARRAY:
        return read_array(to, at, end);
    case MAP:
        return read_map(to, at, end);
    case STRUCT:
        return read_struct(to, at, end);
    default:
        return NULL;
    }
}

/* ---- a batch ---- */

/* The names of the fields as records have them. False if memory is missing. */
static bool begin_names(column *of)
{
    const field *type = of->type;
    for (int32_t i = 0; i < type->count; i++)
        if (!begin_names(of->children + i))
            return false;
    if (type->kind != STRUCT)
        return true;
    of->words = arena_take(of->run->scratch, sizeof(vocabulary));
    if (of->words == NULL || !names_begin(of->words, of->run->scratch, type->count))
        return false;
    for (int32_t i = 0; i < type->count; i++) {
        int32_t length = type->children[i].name_length;
        uint8_t *bytes = arena_take(of->run->scratch, length + 2);
        if (bytes == NULL)
            return false;
        bool is_short = length < NIL - FIXSTR;
        bytes[0] = is_short ? (uint8_t)(FIXSTR + length) : STR8;
        bytes[1] = (uint8_t)length;
        uint8_t *text = bytes + (is_short ? 1 : 2);
        memcpy(text, type->children[i].name, (size_t)length);
        names_add_bytes(of->words, bytes, (int32_t)(text - bytes) + length);
    }
    return true;
}

static bool read_record(column *record, const void *needs_field, const uint8_t *at, const uint8_t *end)
{
    return read_members(record, at, end, *(const bool *)needs_field) == end;
}

/* Names of fields have at most 255 bytes. */
int32_t tg_msgpack_decode(const field *record, int32_t flags, const uint8_t *const *values, const int32_t *lengths,
                          int64_t count, int64_t *left, int64_t *left_count, struct ArrowArray *array,
                          struct ArrowSchema *schema)
{
    bool needs_field = (flags & NEEDS_FIELD) != 0;
    decoding by = {begin_names, read_record, &needs_field, (flags & STRICT) != 0};
    return records_decode(record, &by, values, lengths, count, left, left_count, array, schema);
}
