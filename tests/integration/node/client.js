// Drives kafkajs, a JavaScript client of its own making, for test_node_clients.py:
//
//   node client.js records|group|admin <bootstrap> <topic>
//
// prints what it saw as one line of JSON, or ends with status 1 and the error.
'use strict'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const [scenario, bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: bootstrap.split(','), clientId: 'kafkajs', logLevel: logLevel.NOTHING })

async function until (what, condition) {
  const deadline = Date.now() + 40000
  while (!await condition()) {
    if (Date.now() > deadline) throw new Error(`not in time: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

const refusal = promise => promise.then(() => 'nothing', error => error.type || error.name)

async function records () {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = [...Array(300).keys()].map(number => ({
      key: `k${number % 7}`,
      value: `${compression} ${number} ${'x'.repeat(200)}`,
      headers: { codec: `${compression}` }
    }))
    await producer.send({ topic, compression, messages })
  }
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `g-${topic}`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const read = {}
  const last = {}
  let total = 0
  let disorder = 0
  await consumer.run({
    eachMessage: async ({ message }) => {
      const [compression, number] = message.value.toString().split(' ')
      const order = `${compression} ${message.key}`
      if (message.headers.codec.toString() !== compression || +number <= (last[order] ?? -1)) disorder++
      last[order] = +number
      read[compression] = (read[compression] ?? 0) + 1
      total++
    }
  })
  await until('600 records', () => total >= 600)
  await consumer.disconnect()
  return { read, disorder }
}

async function member (groupId) {
  const consumer = kafka.consumer({
    groupId, sessionTimeout: 6000, heartbeatInterval: 200, maxWaitTimeInMs: 100
  })
  const found = { consumer, held: [], read: [] }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    found.held = payload.memberAssignment[topic] ?? []
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { found.read.push(message.value.toString()) } })
  return found
}

async function group () {
  const groupId = `g-${topic}`
  const admin = kafka.admin()
  const producer = kafka.producer()
  await Promise.all([admin.connect(), producer.connect()])
  let sent = 0
  const send = () => producer.send({
    topic, messages: [...Array(100).keys()].map(() => ({ value: `${sent++}`, partition: sent % 4 }))
  })
  await send()
  const first = await member(groupId)
  await until('the first member to hold all', () => first.held.length === 4)
  await until('the first member to read', () => new Set(first.read).size === sent)
  const second = await member(groupId)
  await until('two members to share', () => first.held.length === 2 && second.held.length === 2)
  await send()
  const all = () => new Set([...first.read, ...second.read])
  await until('both to read', () => all().size === sent)
  const [described] = (await admin.describeGroups([groupId])).groups
  await second.consumer.disconnect()
  await until('the first member to hold all again', () => first.held.length === 4)
  await send()
  await until('the first member to read the rest', () => all().size === sent)
  await first.consumer.disconnect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  const committed = partitions.map(one => +one.offset).reduce((one, other) => one + other)
  const listed = (await admin.listGroups()).groups.some(one => one.groupId === groupId)
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '3' }] })
  const again = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
  await admin.deleteGroups([groupId])
  await Promise.all([admin.disconnect(), producer.disconnect()])
  return {
    sent,
    read: all().size,
    committed,
    listed,
    sought: again.find(one => one.partition === 0).offset,
    described: [described.state, described.protocol, described.members.length]
  }
}

async function administer () {
  const admin = kafka.admin()
  const producer = kafka.producer()
  await Promise.all([admin.connect(), producer.connect()])
  const told = {}
  const { brokers, controller } = await admin.describeCluster()
  told.brokers = brokers.map(one => one.nodeId).sort()
  told.controller = told.brokers.includes(controller)
  const wanted = { topic, numPartitions: 2, replicationFactor: 3, configEntries: [{ name: 'retention.ms', value: '86400000' }] }
  told.created = await admin.createTopics({ topics: [wanted], waitForLeaders: true })
  told.created_again = await admin.createTopics({ topics: [wanted] })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions
  await until('three partitions with leaders', async () => {
    const found = await partitions()
    return found.length === 3 && found.every(one => one.leader > 0)
  })
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const config = async name => {
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ ...resource, configNames: [name] }] })
    return resources[0].configEntries[0].configValue
  }
  told.before = await config('retention.ms')
  const alter = (name, value) => admin.alterConfigs({
    validateOnly: false, resources: [{ ...resource, configEntries: [{ name, value }] }]
  })
  await alter('retention.ms', '1000000')
  told.after = await config('retention.ms')
  told.refused = await refusal(alter('retention.ms', 'soon'))
  await producer.send({
    topic, messages: [...Array(90).keys()].map(number => ({
      value: `${number}`, partition: number % 3, timestamp: `${1700000000000 + number}`
    }))
  })
  const sorted = found => found.sort((one, other) => one.partition - other.partition)
  told.offsets = sorted(await admin.fetchTopicOffsets(topic)).map(one => [one.low, one.high].map(Number))
  told.at = sorted(await admin.fetchTopicOffsetsByTimestamp(topic, 1700000000060)).map(one => +one.offset)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '10' }] })
  told.low = sorted(await admin.fetchTopicOffsets(topic)).map(one => +one.low)
  const replicas = [...(await partitions()).find(one => one.partitionId === 0).replicas].reverse()
  await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition: 0, replicas }] }] })
  await until('the end of the reassignment', async () => {
    const { topics } = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })
    return topics.length === 0
  })
  const moved = (await partitions()).find(one => one.partitionId === 0).replicas
  told.moved = JSON.stringify(moved) === JSON.stringify(replicas)
  await admin.deleteTopics({ topics: [topic] })
  await until('the topic to be gone', async () => !(await admin.listTopics()).includes(topic))
  await Promise.all([admin.disconnect(), producer.disconnect()])
  return told
}

const scenarios = { records, group, admin: administer }
scenarios[scenario]().then(
  told => { console.log(JSON.stringify(told)) },
  error => { console.error(error); process.exit(1) }
)
