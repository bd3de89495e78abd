package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

const soon = 30 * time.Second

// administer asks for what this client can, and prints what it was told as one line of JSON.
func administer(bootstrap []string, arguments []string) {
	topic, group := arguments[0], arguments[1]
	client, told := &kafka.Client{Addr: kafka.TCP(bootstrap...)}, map[string]any{}
	topics(client, topic, told)
	configs(client, topic, told)
	groups(client, topic, group, told)
	refused(client, told)
	deleted := must(client.DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{topic, "nowhere"}}))
	told["deleted"] = []any{text(deleted.Errors[topic]), text(deleted.Errors["nowhere"])}
	check(json.NewEncoder(os.Stdout).Encode(told))
}

func topics(client *kafka.Client, topic string, told map[string]any) {
	ctx := context.Background()
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 2, ReplicationFactor: 3,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
	}}}
	told["created"] = text(must(client.CreateTopics(ctx, request)).Errors[topic])
	told["created twice"] = text(must(client.CreateTopics(ctx, request)).Errors[topic])
	more := func(count int32) string {
		asked := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: count}}}
		return text(must(client.CreatePartitions(ctx, asked)).Errors[topic])
	}
	told["more partitions"], told["fewer partitions"] = more(4), more(1)
	told["described"] = eventually(func() [3]int {
		found := must(client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}}))
		return [3]int{len(found.Brokers), len(found.Topics), len(found.Topics[0].Partitions)}
	}, [3]int{3, 1, 4})
	offsets := must(client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}},
	})).Topics[topic][0]
	told["offsets"] = []any{offsets.FirstOffset, offsets.LastOffset, text(offsets.Error)}
	elected := must(client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{
		Topic: topic, Partitions: []int{0}, Timeout: soon,
	}))
	told["elected"] = text(elected.Error)
}

// eventually asks until it is told what is wanted: brokers learn of a change one after the other.
func eventually[T comparable](ask func() T, wanted T) T {
	until := time.Now().Add(soon)
	for {
		if found := ask(); found == wanted || time.Now().After(until) {
			return found
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func configs(client *kafka.Client, topic string, told map[string]any) {
	ctx := context.Background()
	value := func() string {
		found := must(client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}},
		}}))
		check(found.Resources[0].Error)
		return found.Resources[0].ConfigEntries[0].ConfigValue
	}
	told["retention"] = eventually(value, "3600000")
	altered := must(client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.AlterConfigRequestConfig{{Name: "retention.ms", Value: "86400000"}},
	}}}))
	for _, err := range altered.Errors {
		told["altered"] = text(err)
	}
	told["retention after"] = eventually(value, "86400000")
	changed := must(client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "retention.ms", ConfigOperation: kafka.ConfigOperationDelete},
			},
		}},
	}))
	told["altered back"] = text(changed.Resources[0].Error)
	told["retention again"] = eventually(value, "604800000")
}

func groups(client *kafka.Client, topic, group string, told map[string]any) {
	ctx := context.Background()
	listed := false
	for _, one := range must(client.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
		listed = listed || one.GroupID == group
	}
	told["listed group"] = listed
	described := must(client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})).Groups[0]
	told["described group"] = []any{described.GroupState, len(described.Members), text(described.Error)}
	nobody := must(client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{"nobody"}}))
	told["deleted nobody"] = text(nobody.Errors["nobody"])
	deleted := must(client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}}))
	told["deleted group"] = text(deleted.Errors[group])
}

func refused(client *kafka.Client, told map[string]any) {
	ctx := context.Background()
	created := must(client.CreateACLs(ctx, &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
		Principal: "User:ann", PermissionType: kafka.ACLPermissionTypeAllow, Operation: kafka.ACLOperationTypeRead,
		ResourceType: kafka.ResourceTypeTopic, ResourcePatternType: kafka.PatternTypeLiteral, ResourceName: "t", Host: "*",
	}}}))
	told["acl created"] = text(created.Errors[0])
	described := must(client.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
		ResourceTypeFilter: kafka.ResourceTypeAny, ResourcePatternTypeFilter: kafka.PatternTypeAny,
		Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
	}}))
	told["acls described"] = text(described.Error)
}

// text is the name that the client gives to an error, "" for none.
func text(err error) string {
	var code kafka.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &code):
		return code.Title()
	}
	return err.Error()
}
