package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 300

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

// records produces idempotently with every codec and reads all of it again, headers and order included.
func records(ctx context.Context, given arguments) {
	for _, one := range codecs {
		producer := client(given, kgo.ProducerBatchCompression(one.codec), kgo.DefaultProduceTopic(given.topic))
		var batch []*kgo.Record
		for number := range perCodec {
			batch = append(batch, &kgo.Record{
				Key:     fmt.Appendf(nil, "k%d", number%7),
				Value:   fmt.Appendf(nil, "%s %d %s", one.name, number, strings.Repeat("x", 200)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(one.name)}},
			})
		}
		check(producer.ProduceSync(ctx, batch...).FirstErr())
		producer.Close()
	}

	reader := client(given, kgo.ConsumeTopics(given.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(4096)) // many fetches, so that sessions are used
	defer reader.Close()
	read := map[string]int{}
	last := map[string]int{}
	for total := 0; total < perCodec*len(codecs); {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			var codec string
			var number int
			must(fmt.Sscanf(string(record.Value), "%s %d", &codec, &number))
			key := codec + string(record.Key)
			if before, known := last[key]; known && before >= number {
				panic(fmt.Sprintf("%s: %d stands behind %d", key, number, before))
			}
			if string(record.Headers[0].Value) != codec {
				panic("a header of another record")
			}
			last[key] = number
			read[codec]++
			total++
		})
	}
	tell(map[string]any{"read": read})
}
