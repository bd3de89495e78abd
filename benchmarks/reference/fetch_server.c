// fetch_server FILE BYTES: the least that a broker does for a fetch request, thread per connection.
//
// Every frame is answered with a header of 64 bytes that begins with the correlation id, and with the next BYTES of
// FILE by sendfile.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "common.h"

static int file;
static off_t file_size, slice_size;

static void *serve(void *argument) {
    int client = (int)(intptr_t)argument;
    uint8_t *frame = malloc(FRAME_MAX), header[68] = {0};
    uint32_t announced = htonl((uint32_t)(64 + slice_size));
    memcpy(header, &announced, 4);
    off_t at = 0;
    while (read_frame(client, frame) >= 8) {
        memcpy(header + 4, frame + 4, 4);
        if (write_all(client, header, sizeof header, MSG_MORE)) break;
        if (at + slice_size > file_size) at = 0;
        off_t end = at + slice_size;
        while (at < end && sendfile(client, file, &at, (size_t)(end - at)) > 0) {
        }
        if (at < end) break;
    }
    free(frame);
    close(client);
    return NULL;
}

int main(int count, char **values) {
    if (count != 3) return 2;
    struct stat status;
    file = open(values[1], O_RDONLY);
    if (file < 0 || fstat(file, &status)) return 1;
    file_size = status.st_size;
    slice_size = atol(values[2]);
    serve_forever(serve);
}
