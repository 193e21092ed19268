/* Hands records to a producer of librdkafka, without a call of the Python client for each.
 *
 * Records are columns of Polars, read in place. librdkafka copies them. Its functions come as pointers, as in
 * `messages.c`.
 *
 * Records are handed over partition by partition. The copies of one partition then lie next to each other: what librdkafka
 * does with them afterwards, also in its own threads, takes a third of the time.
 */
#include "lent.h"
#include "message.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

typedef int32_t (*produce_record)(void *, ...);
typedef int (*produce_records)(void *, int32_t, int, message *, int);
typedef int32_t (*choose_partition)(const void *, const void *, size_t, int32_t, void *, void *);
typedef void *(*new_headers)(size_t);
typedef int32_t (*add_header)(void *, const char *, ptrdiff_t, const void *, ptrdiff_t);
typedef void (*destroy_headers)(void *);

/* A client, one of its topics, and functions. */
typedef struct {
    produce_record produce;
    produce_records produce_batch;
    new_headers make;
    add_header add;
    destroy_headers destroy;
    void *client;
    void *topic;
    void *undelivered; /* `tg_report` gets it with a record */
} outlet;

/* Columns of one length. All but `values` may be NULL: no record has such a part. */
typedef struct {
    const struct ArrowArray *values;     /* bytes; NULL for a tombstone */
    const struct ArrowArray *keys;       /* bytes */
    const struct ArrowArray *timestamps; /* int64; NULL for the time of sending */
    const struct ArrowArray *partitions; /* int32; NULL where the client chooses it */
    const struct ArrowArray *headers;    /* lists of a name and bytes */
} records;

/* In which order records are handed over: the row at each place, and the partition of each row. */
typedef struct {
    int32_t *rows;
    int32_t *partitions; /* ANY_PARTITION: the client chooses it */
} arrangement;

/* What was handed over: how many records, from the first place on, were taken, and why the next one was not. */
typedef struct {
    int64_t taken;
    int64_t behind; /* records that were taken behind one that was not */
    int32_t error;
} handed_over;

enum { REASONS_MAX = 8 };

/* Records that were not delivered: how many, and the first one with each error. */
typedef struct {
    int64_t count;
    int64_t reasons;
    struct {
        int32_t error;
        int32_t partition;
        void *topic;
        int64_t bytes;
    } first[REASONS_MAX];
    atomic_flag busy; /* several threads may serve a client's events */
} undelivered;

/* rd_kafka_vtype_t and a flag: public, and only ever added to. */
enum { END, TOPIC_NAME, TOPIC, PARTITION, VALUE, KEY, OPAQUE, FLAGS, TIMESTAMP, HEADER, HEADERS };
enum { COPY = 2 };
/* rd_kafka_resp_err_t */
enum { INVALID_ARGUMENT = -186 };

enum { ANY_PARTITION = -1, NOW = 0, BATCH_RECORDS = 256 };

/* More than a part of a record may have: librdkafka refuses it before it reads it. Larger lengths are negative in a view. */
static const size_t TOO_LARGE = (size_t)INT32_MAX + 1;

/* NULL and no bytes for NULL. */
static const uint8_t *part_of(const struct ArrowArray *column, int64_t row, size_t *size)
{
    *size = 0;
    if (column == NULL || !lent_known(column, row))
        return NULL;
    int32_t length;
    const uint8_t *bytes = lent_bytes(column, row, &length);
    *size = length < 0 ? TOO_LARGE : (size_t)length;
    return bytes;
}

/* The entries of a row's list, as rows of the columns of names and values. None for NULL. */
static void entries_of(const struct ArrowArray *lists, int64_t row, int64_t *first, int64_t *end)
{
    const int64_t *offsets = lent_values(lists, sizeof(int64_t));
    int64_t before = lists->children[0]->offset;
    *first = before + offsets[row];
    *end = lent_known(lists, row) ? before + offsets[row + 1] : *first;
}

/* NULL where a header has no name, or is too large. */
static void *make_headers(const outlet *to, const struct ArrowArray *lists, int64_t first, int64_t end)
{
    const struct ArrowArray *names = lists->children[0]->children[0], *values = lists->children[0]->children[1];
    void *list = to->make((size_t)(end - first));
    for (int64_t i = first; i < end; i++) {
        size_t name_size, size;
        const uint8_t *name = part_of(names, i, &name_size), *value = part_of(values, i, &size);
        if (name == NULL || name_size == TOO_LARGE || size == TOO_LARGE) {
            to->destroy(list);
            return NULL;
        }
        to->add(list, (const char *)name, (ptrdiff_t)name_size, value, (ptrdiff_t)size);
    }
    return list;
}

/* A delivery report of librdkafka, about a record that was handed over here. */
void tg_report(void *client, const message *one, void *client_opaque)
{
    (void)client, (void)client_opaque;
    undelivered *to = one->opaque;
    if (one->err == NO_ERROR || to == NULL)
        return;
    while (atomic_flag_test_and_set(&to->busy))
        ;
    int64_t at = 0;
    while (at < to->reasons && to->first[at].error != one->err)
        at++;
    if (at == to->reasons && at < REASONS_MAX) {
        to->first[at].error = one->err;
        to->first[at].partition = one->partition;
        to->first[at].topic = one->topic;
        to->first[at].bytes = (int64_t)(one->key_size + one->value_size);
        to->reasons++;
    }
    to->count++;
    atomic_flag_clear(&to->busy);
}

/* Partitions that are named, and those of keys in a topic of `count` partitions; 0: the client chooses them. */
static int32_t partition_of(const records *from, int64_t row, choose_partition choose, int32_t count)
{
    if (from->partitions != NULL && lent_known(from->partitions, row))
        return ((const int32_t *)lent_values(from->partitions, sizeof(int32_t)))[row];
    size_t size;
    const uint8_t *key = count > 0 ? part_of(from->keys, row, &size) : NULL;
    return key == NULL || size == TOO_LARGE ? ANY_PARTITION : choose(NULL, key, size, count, NULL, NULL);
}

/* Partitions that are not known yet stay in the order of rows, after all others. */
static int64_t bucket_of(int32_t partition, int32_t count)
{
    return partition < 0 ? 0 : partition < count ? partition + 1 : count + 1;
}

/* Arranges all records by partition, and within each in the order of rows: a topic of `count` partitions, or 0 where the
 * client is to choose those of keys, which then may be any, so that the order of rows is kept. False without memory. */
int32_t tg_arrange(const records *from, int64_t rows, choose_partition choose, int32_t count, arrangement *to)
{
    int64_t *next = calloc((size_t)count + 3, sizeof *next);
    if (next == NULL)
        return 0;
    for (int64_t row = 0; row < rows; row++) {
        to->partitions[row] = partition_of(from, row, choose, count);
        next[bucket_of(to->partitions[row], count) + 1]++;
    }
    for (int64_t bucket = 1; bucket < count + 2; bucket++)
        next[bucket] += next[bucket - 1];
    for (int64_t row = 0; row < rows; row++)
        to->rows[count == 0 ? row : next[bucket_of(to->partitions[row], count)]++] = (int32_t)row;
    free(next);
    return 1;
}

static int32_t produce_one(const outlet *to, const records *from, int64_t row, int32_t partition)
{
    int64_t first = 0, end = 0, timestamp = NOW;
    size_t size, key_size;
    const uint8_t *value = part_of(from->values, row, &size), *key = part_of(from->keys, row, &key_size);
    if (from->timestamps != NULL && lent_known(from->timestamps, row))
        timestamp = ((const int64_t *)lent_values(from->timestamps, sizeof timestamp))[row];
    if (from->headers != NULL)
        entries_of(from->headers, row, &first, &end);
    void *headers = end > first ? make_headers(to, from->headers, first, end) : NULL;
    if (end > first && headers == NULL)
        return INVALID_ARGUMENT;
    int32_t error = to->produce(to->client, TOPIC, to->topic, PARTITION, partition, FLAGS, (int)COPY, VALUE, value, size,
                                KEY, key, key_size, TIMESTAMP, timestamp, HEADERS, headers, OPAQUE, to->undelivered, END);
    if (error != NO_ERROR && headers != NULL)
        to->destroy(headers);
    return error;
}

static void produce_each(const outlet *to, const records *from, const arrangement *in, int64_t start, int64_t end,
                         handed_over *found)
{
    for (int64_t place = start; place < end && found->error == NO_ERROR; place++) {
        int64_t row = in->rows[place];
        found->error = produce_one(to, from, row, in->partitions[row]);
        found->taken += found->error == NO_ERROR;
    }
}

/* Notes which records of a batch were taken. librdkafka goes on behind a record that it refuses. */
static void read_errors(const message *batch, int64_t count, handed_over *found)
{
    for (int64_t i = 0; i < count; i++)
        if (batch[i].err == NO_ERROR) {
            found->taken += found->error == NO_ERROR;
            found->behind += found->error != NO_ERROR;
        } else if (found->error == NO_ERROR)
            found->error = batch[i].err;
}

/* Some records of one partition, with no more than a key and a value. */
static void produce_run(const outlet *to, const records *from, const int32_t *rows, int64_t count, int32_t partition,
                           handed_over *found)
{
    message batch[BATCH_RECORDS];
    for (int64_t i = 0; i < count; i++) {
        batch[i] = (message){.opaque = to->undelivered};
        batch[i].value = (uint8_t *)part_of(from->values, rows[i], &batch[i].value_size);
        batch[i].key = (uint8_t *)part_of(from->keys, rows[i], &batch[i].key_size);
    }
    if (to->produce_batch(to->topic, partition, COPY, batch, (int)count) == (int)count)
        found->taken += count;
    else
        read_errors(batch, count, found);
}

static void produce_runs(const outlet *to, const records *from, const arrangement *in, int64_t start, int64_t end,
                         handed_over *found)
{
    while (start < end && found->error == NO_ERROR) {
        const int32_t *rows = in->rows + start;
        int32_t partition = in->partitions[rows[0]];
        int64_t count = 1;
        while (count < BATCH_RECORDS && start + count < end && in->partitions[rows[count]] == partition)
            count++;
        produce_run(to, from, rows, count, partition, found);
        start += count;
    }
}

/* Hands over the records from place `start` on, before place `end`, up to the first one that is not taken. */
void tg_produce(const outlet *to, const records *from, const arrangement *in, int64_t start, int64_t end,
                handed_over *found)
{
    *found = (handed_over){0};
    bool plain = from->timestamps == NULL && from->headers == NULL;
    (plain ? produce_runs : produce_each)(to, from, in, start, end, found);
}

static int64_t bytes_of(const struct ArrowArray *column, int64_t first, int64_t end)
{
    int64_t sum = 0;
    for (int64_t i = first; column != NULL && i < end; i++) {
        size_t size;
        part_of(column, i, &size);
        sum += (int64_t)size;
    }
    return sum;
}

/* The bytes of all keys, values and headers. */
int64_t tg_records_bytes(const records *these, int64_t count)
{
    int64_t sum = bytes_of(these->values, 0, count) + bytes_of(these->keys, 0, count);
    for (int64_t row = 0; these->headers != NULL && row < count; row++) {
        int64_t first, end;
        entries_of(these->headers, row, &first, &end);
        for (int part = 0; part < 2; part++)
            sum += bytes_of(these->headers->children[0]->children[part], first, end);
    }
    return sum;
}
