package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const perKind = 10

// way is one way into a secured cluster; secured_cells.py says more.
type way struct {
	Name, Bootstrap, Protocol, Ca, Mechanism, User, Password, Certificate, Key, Topic, Denied string
}

// secured walks all ways that its third argument lists as JSON, and tells what was seen by each.
func secured(ctx context.Context, given arguments) {
	var ways []way
	check(json.Unmarshal([]byte(given.rest[0]), &ways))
	told := map[string]any{}
	for _, one := range ways {
		told[one.Name] = walk(ctx, one)
	}
	tell(told)
}

func walk(ctx context.Context, one way) map[string]any {
	admin := kadm.NewClient(reach(one))
	defer admin.Close()
	must(must(admin.CreateTopics(ctx, 2, 2, nil, one.Topic)).On(one.Topic, nil))
	told := map[string]any{"partitions": settled(2, func() any {
		return len(must(admin.ListTopics(ctx, one.Topic))[one.Topic].Partitions)
	})}
	write(ctx, one)
	told["read"] = read(ctx, one)
	committed := int64(0)
	must(admin.FetchOffsets(ctx, one.Topic)).Each(func(offset kadm.OffsetResponse) { committed += offset.At })
	told["committed"] = committed >= 2*perKind
	retention := "86400000"
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention}}
	must(must(admin.AlterTopicConfigs(ctx, change, one.Topic)).On(one.Topic, nil))
	told["setting"] = settled(retention, func() any {
		for _, config := range must(must(admin.DescribeTopicConfigs(ctx, one.Topic)).On(one.Topic, nil)).Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue()
			}
		}
		return nil
	})
	told["denied"] = refusal(ctx, one)
	must(must(admin.DeleteTopics(ctx, one.Topic)).On(one.Topic, nil))
	told["deleted"] = settled(true, func() any { return !must(admin.ListTopics(ctx)).Has(one.Topic) })
	return told
}

// settled is what is asked, once it is as wanted: another broker than the one that changed it may answer later.
func settled(wanted any, ask func() any) any {
	found := ask()
	for end := time.Now().Add(10 * time.Second); found != wanted && time.Now().Before(end); found = ask() {
		time.Sleep(20 * time.Millisecond)
	}
	return found
}

func write(ctx context.Context, one way) {
	send := func(client *kgo.Client, kind string) {
		for number := range perKind {
			value := fmt.Appendf(nil, "%s-%d", kind, number)
			record := &kgo.Record{Topic: one.Topic, Partition: int32(number % 2), Value: value}
			check(client.ProduceSync(ctx, record).FirstErr())
		}
	}
	producer := reach(one, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	send(producer, "plain")
	producer.Close()
	producer = reach(one, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(one.Topic))
	defer producer.Close()
	for _, kind := range []string{"committed", "aborted"} {
		check(producer.BeginTransaction())
		send(producer, kind)
		check(producer.EndTransaction(ctx, kgo.TransactionEndTry(kind == "committed")))
	}
}

func read(ctx context.Context, one way) []string {
	consumer := reach(one, kgo.ConsumerGroup(one.Topic), kgo.ConsumeTopics(one.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer consumer.Close()
	var found []string
	for len(found) < 2*perKind {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			kind, _, _ := strings.Cut(string(record.Value), "-")
			found = append(found, kind)
		})
	}
	check(consumer.CommitUncommittedOffsets(ctx))
	slices.Sort(found)
	return found
}

func refusal(ctx context.Context, one way) string {
	producer := reach(one, kgo.DisableIdempotentWrite())
	defer producer.Close()
	err := producer.ProduceSync(ctx, &kgo.Record{Topic: one.Denied, Value: []byte("denied")}).FirstErr()
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return fmt.Sprint(err)
}

func reach(one way, options ...kgo.Opt) *kgo.Client {
	if strings.HasSuffix(one.Protocol, "SSL") {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(must(os.ReadFile(one.Ca)))
		config := &tls.Config{RootCAs: trusted}
		if one.Certificate != "" {
			config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(one.Certificate, one.Key))}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if one.Mechanism != "" {
		mechanisms := map[string]sasl.Mechanism{
			"PLAIN":         plain.Auth{User: one.User, Pass: one.Password}.AsMechanism(),
			"SCRAM-SHA-256": scram.Auth{User: one.User, Pass: one.Password}.AsSha256Mechanism(),
			"SCRAM-SHA-512": scram.Auth{User: one.User, Pass: one.Password}.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: one.Password}.AsMechanism(),
		}
		options = append(options, kgo.SASL(mechanisms[one.Mechanism]))
	}
	options = append(options, kgo.RetryTimeout(time.Minute))
	return client(arguments{bootstrap: strings.Split(one.Bootstrap, ",")}, options...)
}
