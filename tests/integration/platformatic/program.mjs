// Drives @platformatic/kafka through what the tests of tests/programs ask for:
//
//   node program.mjs load   <bootstrap> <topic> <codec>...
//   node program.mjs read   <bootstrap> <topic> <count>
//   node program.mjs member <bootstrap> <topic> <group> <name>
//   node program.mjs copy   <bootstrap> <topic> <target> <group> <name>
//   node program.mjs admin  <bootstrap> <topic> <group>
//
// What each prints stands beside it. The environment variable WAY has a way in, as JSON, for clusters with security.
import { setTimeout as pause } from 'node:timers/promises'

import {
  Admin, ConfigResourceTypes, Consumer, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps,
  MessagesStreamFallbackModes, MessagesStreamModes, Producer
} from '@platformatic/kafka'

import { reach } from './reach.mjs'

const WRITE_EVERY_MS = 5
const TOLD_EACH = 50
const BATCH = 5
const SOON_MS = 30000

const [verb, bootstrap = '', ...rest] = process.argv.slice(2)
const base = {
  ...reach({ ...JSON.parse(process.env.WAY ?? '{}'), bootstrap }), retries: 1000, retryDelay: 200
}

// load writes 0, 1, 2 ... until SIGTERM, by a producer for each codec, which has the partition of the codec's place in
// the list. It prints "acknowledged N" now and then, "failed" with each error, and "done N" at its end.
async function load (topic, ...codecs) {
  const waiting = codecs.map(() => [])
  let sent = 0
  let acknowledged = 0
  let stopped = false
  process.once('SIGTERM', () => { stopped = true })
  const write = async partition => {
    const producer = new Producer({ ...base, idempotent: true, compression: codecs[partition] })
    while (!stopped || waiting[partition].length > 0) {
      const values = waiting[partition].splice(0)
      if (values.length === 0) {
        await pause(WRITE_EVERY_MS)
        continue
      }
      try {
        await producer.send({
          messages: values.map(value => ({ topic, partition, key: Buffer.from(codecs[partition]), value }))
        })
      } catch (error) {
        console.log('failed', error)
        continue
      }
      const before = acknowledged
      acknowledged += values.length
      if (Math.floor(acknowledged / TOLD_EACH) > Math.floor(before / TOLD_EACH)) {
        console.log('acknowledged', acknowledged)
      }
    }
    await producer.close()
  }
  const writers = codecs.map((_, partition) => write(partition))
  while (!stopped) {
    waiting[sent % codecs.length].push(Buffer.from(`${sent++}`))
    await pause(WRITE_EVERY_MS)
  }
  await Promise.all(writers)
  console.log('done', sent)
}

// read prints "PARTITION VALUE" for each record of a topic from its beginning, until there were as many as are asked for.
async function read (topic, wanted) {
  const { stream } = await joined(topic, `reader-of-${topic}`)
  let count = 0
  for await (const message of stream) {
    console.log(message.partition, message.value.toString())
    if (++count === +wanted) break
  }
  process.exit(0)
}

// member prints "holds [PARTITIONS]" as often as the group is balanced, "PARTITION VALUE" for each record, and commits it
// then, until it is killed.
async function member (topic, group) {
  for (;;) {
    const { consumer, stream } = await joined(topic, group)
    try {
      for await (const message of stream) {
        console.log(message.partition, message.value.toString())
        await message.commit()
      }
    } catch (error) {
      console.log('left', error)
    }
    await closed(consumer)
  }
}

async function joined (topic, groupId, heldBy = held => { console.log(`holds [${held.join(' ')}]`) }) {
  const consumer = new Consumer({
    ...base, groupId, autocommit: false, sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 500, maxWaitTime: 200
  })
  // One that is closed while it joins again says so by an event, which would end the process.
  consumer.on('error', error => { console.error('left', error) })
  consumer.on('consumer:group:join', ({ assignments }) => {
    heldBy(assignments.filter(one => one.topic === topic).flatMap(one => one.partitions))
  })
  const stream = await consumer.consume({
    topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: MessagesStreamFallbackModes.EARLIEST
  })
  return { consumer, stream }
}

const closed = client => client.close(true).catch(error => { console.log('not closed', error) })

// copy reads, writes and commits in transactions, as a member of a group, until it is killed. It begins anew after each
// error. It prints an object with the number of its commits as often as one is done.
async function copy (source, target, group, name) {
  let commits = 0
  for (;;) {
    const { consumer, stream } = await joined(source, group, () => {})
    // Without an id and an epoch this client asks to go on with producer id 0, which is somebody else's. It tries again
    // where the group's coordinator was when a message came, and not where it is: so it gives up soon, and begins anew.
    const producer = new Producer({
      ...base, retries: 20, idempotent: true, transactionalId: `copier-${name}`, producerId: -1n, producerEpoch: -1,
      timeout: 10000
    })
    try {
      for await (const messages of batches(stream)) {
        const transaction = await producer.beginTransaction()
        await transaction.addConsumer(consumer)
        await transaction.send({
          messages: messages.map(({ partition, value }) => ({ topic: target, partition, value }))
        })
        for (const last of new Map(messages.map(message => [message.partition, message])).values()) {
          await transaction.addOffset(last)
        }
        await transaction.commit()
        console.log(JSON.stringify({ commits: { [name]: ++commits } }))
      }
    } catch (error) {
      console.error('anew', error)
    }
    await closed(producer)
    await closed(consumer)
  }
}

async function * batches (stream) {
  let messages = []
  for await (const message of stream) {
    messages.push(message)
    if (messages.length === BATCH || stream.readableLength === 0) {
      yield messages
      messages = []
    }
  }
}

// admin asks for what this client can, and prints what it was told as one line of JSON.
async function administer (topic, group) {
  const admin = new Admin({ ...base, retries: 3 })
  const told = {}
  const wanted = {
    topics: [topic], partitions: 2, replicas: 3, configs: [{ name: 'retention.ms', value: '3600000' }]
  }
  told.created = (await admin.createTopics(wanted)).map(one => [one.name, one.partitions, one.replicas])
  told['created twice'] = await refusal(admin.createTopics(wanted))
  await admin.createPartitions({ topics: [{ name: topic, count: 4 }] })
  told['fewer partitions'] = await refusal(admin.createPartitions({ topics: [{ name: topic, count: 1 }] }))
  told.described = await eventually(async () => {
    const found = await admin.metadata({ topics: [topic], forceUpdate: true })
    return [found.brokers.size, found.topics.get(topic).partitionsCount]
  }, [3, 4])
  told.listed = await eventually(async () => (await admin.listTopics()).includes(topic), true)
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
  const retention = async () => {
    const [found] = await admin.describeConfigs({
      resources: [{ ...resource, configurationKeys: ['retention.ms'] }]
    })
    return found.configs[0].value
  }
  const alter = config => admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [config] }] })
  const { DELETE, SET } = IncrementalAlterConfigOperationTypes
  told.retention = await eventually(retention, '3600000')
  await alter({ name: 'retention.ms', configOperation: SET, value: '86400000' })
  told['retention after'] = await eventually(retention, '86400000')
  await alter({ name: 'retention.ms', configOperation: DELETE })
  told['retention again'] = await eventually(retention, '604800000')
  told['altered wrongly'] = await refusal(alter({ name: 'retention.ms', configOperation: SET, value: 'soon' }))
  const ends = await admin.listOffsets({
    topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp: ListOffsetTimestamps.LATEST }] }]
  })
  told.end = Number(ends[0].partitions[0].offset)
  told['listed group'] = (await admin.listGroups()).has(group)
  const described = (await admin.describeGroups({ groups: [group] })).get(group)
  told['described group'] = [described.state, described.members.size]
  told['committed topics'] = (await admin.listConsumerGroupOffsets({ groups: [group] }))[0].topics.length
  told['deleted nobody'] = await refusal(admin.deleteGroups({ groups: ['nobody'] }))
  told['deleted group'] = await refusal(admin.deleteGroups({ groups: [group] }))
  await admin.deleteTopics({ topics: [topic] })
  told['deleted twice'] = await refusal(admin.deleteTopics({ topics: [topic] }))
  await admin.close()
  console.log(JSON.stringify(told))
}

// eventually asks until it is told what is wanted: brokers learn of a change one after the other.
async function eventually (ask, wanted) {
  const until = Date.now() + SOON_MS
  for (;;) {
    const found = await ask()
    if (JSON.stringify(found) === JSON.stringify(wanted) || Date.now() > until) return found
    await pause(100)
  }
}

// refusal is the name of the first error that a broker has answered, "" for none.
const refusal = promise => promise.then(() => '', error => names(error)[0] ?? error.message)
const names = error => [...(error.apiId ? [error.apiId] : []), ...(error.errors ?? []).flatMap(names)]

const verbs = { load, read, member, copy, admin: administer }
if (verbs[verb] === undefined || rest.length < 2) {
  console.error('usage: program.mjs load|read|member|copy|admin <bootstrap> <topic> ...')
  process.exit(2)
}
await verbs[verb](...rest)
