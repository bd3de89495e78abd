package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

const soonS = 30

// administer asks for everything that both Saramas can, and prints what it was told as one line of JSON.
func administer(bootstrap []string, arguments []string) {
	topic, group := arguments[0], arguments[1]
	admin := must(sarama.NewClusterAdmin(bootstrap, settings()))
	told := map[string]any{}
	topics(admin, topic, told)
	configs(admin, topic, told)
	groups(admin, group, told)
	placement(admin, topic, told)
	refused(admin, topic, told)
	check(admin.DeleteTopic(topic))
	unknown := sarama.ErrUnknownTopicOrPartition.Error()
	told["deleted twice"] = until(func() string { return text(admin.DeleteTopic(topic)) }, unknown)
	check(json.NewEncoder(os.Stdout).Encode(told))
}

func topics(admin sarama.ClusterAdmin, topic string, told map[string]any) {
	hour := "3600000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &hour},
	}
	told["validated"] = text(admin.CreateTopic(topic, detail, true))
	told["created"] = text(admin.CreateTopic(topic, detail, false))
	told["created twice"] = text(admin.CreateTopic(topic, detail, false))
	told["more partitions"] = text(admin.CreatePartitions(topic, 4, nil, false))
	told["fewer partitions"] = text(admin.CreatePartitions(topic, 1, nil, false))
	listed := must(admin.ListTopics())[topic]
	told["listed"] = []any{listed.NumPartitions, listed.ReplicationFactor, *listed.ConfigEntries["retention.ms"]}
	told["described"] = until(func() string {
		described := must(admin.DescribeTopics([]string{topic, "nowhere"}))
		return fmt.Sprintf("%s%d %s", text(described[0].Err), len(described[0].Partitions), text(described[1].Err))
	}, "4 "+sarama.ErrUnknownTopicOrPartition.Error())
	brokers, controller, err := admin.DescribeCluster()
	check(err)
	told["brokers"] = len(brokers)
	told["controller is one"] = slices.ContainsFunc(brokers, func(one *sarama.Broker) bool { return one.ID() == controller })
}

func configs(admin sarama.ClusterAdmin, topic string, told map[string]any) {
	value := func(name, wanted string) string {
		return until(func() string {
			found := must(admin.DescribeConfig(sarama.ConfigResource{
				Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name},
			}))
			return fmt.Sprintf("%d %s %t", len(found), found[0].Value, found[0].Default)
		}, wanted)
	}
	day, bad := "86400000", "much"
	told["altered"] = text(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &day}, false))
	told["altered wrongly"] = text(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &bad}, false))
	told["retention"] = value("retention.ms", "1 86400000 false")
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms":   {Operation: sarama.IncrementalAlterConfigsOperationDelete},
		"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: ref("compact")},
	}
	told["altered in part"] = text(admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))
	told["policy"] = value("cleanup.policy", "1 delete,compact false")
	told["retention after"] = value("retention.ms", "1 604800000 true")
	delete(set, "cleanup.policy")
	set["cleanup.policy"] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
	told["altered back"] = text(admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))
	broker := must(admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.BrokerResource, Name: "1", ConfigNames: []string{"num.partitions"},
	}))
	told["broker"] = broker[0].Value
}

func groups(admin sarama.ClusterAdmin, group string, told map[string]any) {
	told["listed group"] = must(admin.ListConsumerGroups())[group]
	described := must(admin.DescribeConsumerGroups([]string{group, "nobody"}))
	slices.SortFunc(described, func(one, _ *sarama.GroupDescription) int {
		if one.GroupId == group {
			return -1
		}
		return 1
	})
	told["described group"] = []any{described[0].State, described[0].ProtocolType, described[0].Protocol, len(described[0].Members)}
	told["described nobody"] = described[1].State
	told["deleted nobody"] = text(admin.DeleteConsumerGroup("nobody"))
	offsets := must(admin.ListConsumerGroupOffsets(group, nil))
	told["committed topics"] = len(offsets.Blocks)
	told["deleted group"] = text(admin.DeleteConsumerGroup(group))
}

func placement(admin sarama.ClusterAdmin, topic string, told map[string]any) {
	told["purged"] = text(admin.DeleteRecords(topic, map[int32]int64{0: 0}))
	told["purged too far"] = text(admin.DeleteRecords(topic, map[int32]int64{0: 5})) != ""
	found := must(admin.DescribeLogDirs([]int32{1}))
	told["folders"] = []any{len(found), text(found[1][0].ErrorCode)}
	all := [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}}
	told["reassigned"] = text(admin.AlterPartitionReassignments(topic, all))
	told["on the move"] = until(func() int {
		return len(must(admin.ListPartitionReassignments(topic, []int32{0, 1, 2, 3}))[topic])
	}, 0)
	elected := must(admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0, 1, 2, 3}}))
	told["elected"] = len(elected[topic])
}

func refused(admin sarama.ClusterAdmin, topic string, told map[string]any) {
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}
	acl := sarama.Acl{Principal: "User:ann", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}
	told["acl created"] = text(admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}))
	every := sarama.AclFilter{
		ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	_, err := admin.ListAcls(every)
	told["acls listed"] = text(err)
	_, err = admin.DeleteACL(every, false)
	told["acls deleted"] = text(err)
	quotas, err := admin.DescribeClientQuotas(nil, false)
	told["quotas"] = []any{len(quotas), text(err)}
	users, err := admin.DescribeUserScramCredentials([]string{"nobody"})
	check(err)
	told["unknown user"] = int(users[0].ErrorCode)
	_, err = admin.RemoveMemberFromConsumerGroup("nobody", []string{"ann"})
	told["removed from nobody"] = text(err)
}

// until asks until it is told what is wanted: brokers learn of a change one after the other.
func until[T comparable](ask func() T, wanted T) T {
	found := ask()
	for attempts := 0; found != wanted && attempts < soonS*10; attempts++ {
		time.Sleep(lookedAfter)
		found = ask()
	}
	return found
}

func ref(value string) *string { return &value }

// text is the name that Sarama gives to an error, "" for none.
func text(err error) string {
	var none sarama.KError
	if err == nil || err == none {
		return ""
	}
	return err.Error()
}
