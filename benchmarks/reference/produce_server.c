// produce_server FILE BATCH_OFFSET: the least that a broker does for a produce request, thread per connection.
//
// A frame's record batch begins BATCH_OFFSET bytes into it: check its CRC-32C, patch base offset and leader epoch,
// append it to FILE, answer 60 bytes that begin with the correlation id.
#include <fcntl.h>

#include "common.h"

static int file;
static size_t batch_offset;

static void *serve(void *argument) {
    int client = (int)(intptr_t)argument;
    uint8_t *frame = malloc(FRAME_MAX), reply[64] = {0, 0, 0, 60};
    uint32_t size;
    while ((size = read_frame(client, frame)) > batch_offset + 21) {
        uint8_t *batch = frame + batch_offset;
        size_t batch_size = size - batch_offset;
        uint32_t stored;
        memcpy(&stored, batch + 17, 4);
        if (ntohl(stored) != crc32c(batch + 21, batch_size - 21)) break;
        memset(batch, 0, 8);
        memset(batch + 12, 0, 4);
        if (write(file, batch, batch_size) != (ssize_t)batch_size) break;
        memcpy(reply + 4, frame + 4, 4);
        if (write_all(client, reply, sizeof reply, 0)) break;
    }
    free(frame);
    close(client);
    return NULL;
}

int main(int count, char **values) {
    if (count != 3) return 2;
    crc_init();
    file = open(values[1], O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0644);
    batch_offset = (size_t)atol(values[2]);
    if (file < 0) return 1;
    serve_forever(serve);
}
