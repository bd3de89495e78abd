package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// administer makes the topic that it is given the name of, changes all that can be changed and deletes it.
func administer(ctx context.Context, given arguments) {
	producer := client(given, kgo.DefaultProduceTopic(given.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	admin := kadm.NewClient(producer)
	topic := given.topic
	brokers := must(admin.ListBrokers(ctx)).NodeIDs()
	told := map[string]any{"brokers": brokers}

	value := func(text string) *string { return &text }
	created := must(admin.CreateTopic(ctx, 2, 2, map[string]*string{"retention.ms": value("86400000")}, topic))
	told["created"] = []any{created.NumPartitions, created.ReplicationFactor, created.ID != kadm.TopicID{}}
	again := must(admin.CreateTopics(ctx, 2, 2, nil, topic))[topic]
	told["created_again"] = again.Err.Error()

	configs := func() map[string]string {
		found := map[string]string{}
		for _, one := range must(admin.DescribeTopicConfigs(ctx, topic))[0].Configs {
			if one.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				found[one.Key] = *one.Value
			}
		}
		return found
	}
	altered := must(admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "max.message.bytes", Value: value("500000")},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: value("compact")},
		{Op: kadm.DeleteConfig, Name: "retention.ms"},
	}, topic))
	check(altered[0].Err)
	told["configs"] = configs()
	told["refused"] = must(admin.AlterTopicConfigs(ctx,
		[]kadm.AlterConfig{{Name: "retention.ms", Value: value("soon")}}, topic))[0].Err.Error()
	check(must(admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: value("1000000")}}, topic))[0].Err)
	told["replaced"] = configs()
	told["broker_configs"] = len(must(admin.DescribeBrokerConfigs(ctx, brokers[0]))[0].Configs)

	check(must(admin.UpdatePartitions(ctx, 3, topic)).Error())
	partitions := func() map[int32]kadm.PartitionDetail {
		return must(admin.Metadata(ctx, topic)).Topics[topic].Partitions
	}
	until(ctx, "three partitions with leaders", func() bool {
		found := partitions()
		for _, one := range found {
			if one.Leader < 0 || one.Err != nil {
				return false
			}
		}
		return len(found) == 3
	})

	send(ctx, producer)
	move(ctx, admin, topic, brokers, partitions, told)
	offsets(ctx, admin, topic, told)
	groups(ctx, admin, given, told)
	quotas(ctx, admin, topic, told)

	logs := map[int32]bool{}
	must(admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{topic: {0: {}}})).Each(func(one kadm.DescribedLogDir) {
		check(one.Err)
		if one.TotalBytes <= 0 {
			panic("a folder without a size")
		}
		one.Topics.Each(func(p kadm.DescribedLogDirPartition) { logs[p.Broker] = p.Size > 0 })
	})
	told["log_dirs"] = logs
	deleted := must(admin.DeleteTopic(ctx, topic))
	check(deleted.Err)
	until(ctx, "the topic to be gone", func() bool { return !must(admin.ListTopics(ctx)).Has(topic) })
	tell(told)
}

func send(ctx context.Context, producer *kgo.Client) {
	var batch []*kgo.Record
	for number := range 90 {
		batch = append(batch, &kgo.Record{
			Partition: int32(number % 3),
			Value:     fmt.Appendf(nil, "%d", number),
			Timestamp: time.UnixMilli(int64(1_700_000_000_000 + number)),
			Key:       []byte("k"),
		})
	}
	check(producer.ProduceSync(ctx, batch...).FirstErr())
}

// move gives partition 0 all brokers in reverse order and elects its new preferred leader.
func move(
	ctx context.Context, admin *kadm.Client, topic string, brokers []int32,
	partitions func() map[int32]kadm.PartitionDetail, told map[string]any,
) {
	wanted := slices.Clone(brokers)
	slices.Reverse(wanted)
	if partitions()[0].Leader == wanted[0] {
		wanted[0], wanted[1] = wanted[1], wanted[0]
	}
	var request kadm.AlterPartitionAssignmentsReq
	request.Assign(topic, 0, wanted)
	check(must(admin.AlterPartitionAssignments(ctx, request)).Error())
	everything := kadm.TopicsSet{topic: {0: {}}}
	until(ctx, "the end of the reassignment", func() bool {
		running := must(admin.ListPartitionReassignments(ctx, everything))
		return len(running.Sorted()) == 0 && len(partitions()[0].ISR) == len(brokers)
	})
	var cancelling kadm.AlterPartitionAssignmentsReq
	cancelling.CancelAssign(topic, 0)
	for _, one := range must(admin.AlterPartitionAssignments(ctx, cancelling)).Sorted() {
		told["cancelled"] = one.Err.Error()
	}
	elected := must(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, everything))
	check(elected[topic][0].Err)
	until(ctx, "the preferred leader", func() bool { return partitions()[0].Leader == wanted[0] })
	told["elected_again"] = must(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, everything))[topic][0].Err.Error()
	told["moved"] = slices.Equal(partitions()[0].Replicas, wanted)
}

func offsets(ctx context.Context, admin *kadm.Client, topic string, told map[string]any) {
	at := func(listed kadm.ListedOffsets, err error) []int64 {
		check(err)
		check(listed.Error())
		found := []int64{}
		for partition := range int32(3) {
			found = append(found, listed[topic][partition].Offset)
		}
		return found
	}
	deleted := must(admin.DeleteRecords(ctx, kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 10}}}))
	check(deleted.Error())
	told["low_watermark"] = deleted[topic][0].LowWatermark
	told["start"] = at(admin.ListStartOffsets(ctx, topic))
	told["end"] = at(admin.ListEndOffsets(ctx, topic))
	told["committed"] = at(admin.ListCommittedOffsets(ctx, topic))
	told["max_timestamp"] = at(admin.ListMaxTimestampOffsets(ctx, topic))
	told["after"] = at(admin.ListOffsetsAfterMilli(ctx, 1_700_000_000_060, topic))
	told["local_start"] = at(admin.ListLocalLogStartOffsets(ctx, topic))

	producers := 0
	must(admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {1: {}}})).EachPartition(func(one kadm.DescribedProducersPartition) {
		check(one.Err)
		producers += len(one.ActiveProducers)
	})
	told["producers"] = producers
	var asked kadm.OffsetForLeaderEpochRequest
	asked.Add(topic, 1, 0)
	for _, one := range must(admin.OffsetForLeaderEpoch(ctx, asked))[topic] {
		check(one.Err)
		told["epoch_end"] = one.EndOffset
	}
}

func groups(ctx context.Context, admin *kadm.Client, given arguments, told map[string]any) {
	name := "g-" + given.topic
	var wanted kadm.Offsets
	for partition := range int32(3) {
		wanted.AddOffset(given.topic, partition, 20, -1)
	}
	check(admin.CommitAllOffsets(ctx, name, wanted))
	listed := must(admin.ListGroups(ctx, "Empty"))
	told["group_listed"] = listed[name].State
	told["group_stable"] = len(must(admin.ListGroups(ctx, "Stable"))[name].Group)
	told["classic"] = must(admin.ListGroupsByType(ctx, []string{"classic"}))[name].Group == name
	told["lag"] = must(admin.Lag(ctx, name))[name].Lag.Total()
	gone := must(admin.DeleteOffsets(ctx, name, kadm.TopicsSet{given.topic: {2: {}}}))
	check(gone.Error())
	left := must(admin.FetchOffsets(ctx, name))
	told["offsets_left"] = len(left[given.topic])
	result := must(admin.DeleteGroup(ctx, name))
	check(result.Err)
	told["deleted_again"] = must(admin.DeleteGroups(ctx, name))[name].Err.Error()
}

func quotas(ctx context.Context, admin *kadm.Client, name string, told map[string]any) {
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}
	change := func(remove bool) {
		ops := []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1_000_000, Remove: remove}}
		for _, one := range must(admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: ops}})) {
			check(one.Err)
		}
	}
	found := func() []kadm.ClientQuotaValue {
		exact := []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: &name, MatchType: kmsg.QuotasMatchTypeExact}}
		values := []kadm.ClientQuotaValue{}
		for _, one := range must(admin.DescribeClientQuotas(ctx, true, exact)) {
			values = append(values, one.Values...)
		}
		return values
	}
	// Whichever broker is asked: others follow the one that answered within milliseconds.
	change(false)
	until(ctx, "the quota to be told", func() bool { return len(found()) > 0 })
	told["quotas"] = found()
	change(true)
	until(ctx, "no quota to be told", func() bool { return len(found()) == 0 })
}
