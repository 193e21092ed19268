/* Hands records to a producer of librdkafka, without a call of the Python client for each.
 *
 * librdkafka copies what it is given. Its functions come as pointers, as in `messages.c`.
 */
#include "message.h"

#include <stdatomic.h>

typedef int32_t (*produce_record)(void *, ...);
typedef void *(*new_headers)(size_t);
typedef int32_t (*add_header)(void *, const char *, ptrdiff_t, const void *, ptrdiff_t);
typedef void (*destroy_headers)(void *);

/* A client, one of its topics, and functions. */
typedef struct {
    produce_record produce;
    new_headers make;
    add_header add;
    destroy_headers destroy;
    void *client;
    void *topic;
    void *undelivered; /* `tg_report` gets it with a record */
} outlet;

typedef struct {
    const uint8_t *const *at;
    const int32_t *lengths; /* -1: NULL */
} column;

/* `at` and the others may be NULL: no record has such a part. */
typedef struct {
    column values, keys;
    const int64_t *timestamps;    /* 0: the time of sending */
    const int32_t *partitions;    /* -1: the client chooses it */
    const int64_t *header_counts; /* how many of `names` and `contents` each record has */
    column names, contents;
} records;

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

static size_t size_of(const column *of, int64_t row)
{
    return of->at == NULL || of->lengths[row] < 0 ? 0 : (size_t)of->lengths[row];
}

static const void *bytes_of(const column *of, int64_t row)
{
    return of->at == NULL || of->lengths[row] < 0 ? NULL : of->at[row];
}

static void *make_headers(const outlet *to, const records *from, int64_t first, int64_t count)
{
    void *list = to->make((size_t)count);
    for (int64_t i = first; i < first + count; i++)
        to->add(list, bytes_of(&from->names, i), from->names.lengths[i], bytes_of(&from->contents, i),
                (ptrdiff_t)size_of(&from->contents, i));
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

/* Returns how many records were taken, in order from the first; `error`: why the next one was not. */
int64_t tg_produce(const outlet *to, const records *from, int64_t count, int32_t *error)
{
    int64_t header = 0;
    *error = NO_ERROR;
    for (int64_t i = 0; i < count; i++) {
        int64_t own = from->header_counts == NULL ? 0 : from->header_counts[i];
        void *list = own > 0 ? make_headers(to, from, header, own) : NULL;
        *error = to->produce(to->client, TOPIC, to->topic, PARTITION,
                             from->partitions == NULL ? (int32_t)-1 : from->partitions[i], FLAGS, (int)COPY, VALUE,
                             bytes_of(&from->values, i), size_of(&from->values, i), KEY, bytes_of(&from->keys, i),
                             size_of(&from->keys, i), TIMESTAMP,
                             from->timestamps == NULL ? (int64_t)0 : from->timestamps[i], HEADERS, list, OPAQUE,
                             to->undelivered, END);
        if (*error != NO_ERROR) {
            if (list != NULL)
                to->destroy(list);
            return i;
        }
        header += own;
    }
    return count;
}
