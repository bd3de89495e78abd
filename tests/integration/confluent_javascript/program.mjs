// Drives @confluentinc/kafka-javascript, by its promises, through what the tests of tests/programs ask for:
//
//   node program.mjs load   <bootstrap> <topic> <codec>...
//   node program.mjs read   <bootstrap> <topic> <count>
//   node program.mjs member <bootstrap> <topic> <group> <name>
//   node program.mjs copy   <bootstrap> <topic> <target> <group> <name>
//   node program.mjs admin  <bootstrap> <topic> <group>
//
// What each prints stands beside it. The environment variable WAY has a way in, as JSON, for clusters with security.
import { setTimeout as pause } from 'node:timers/promises'

import { KafkaJS } from '@confluentinc/kafka-javascript'

import { reach } from './reach.mjs'

const WRITE_EVERY_MS = 5
const TOLD_EACH = 50
const SOON_MS = 30000
const AGAIN_MS = 500

const [verb, bootstrap = '', ...rest] = process.argv.slice(2)
const kafka = new KafkaJS.Kafka({
  ...reach({ ...JSON.parse(process.env.WAY ?? '{}'), bootstrap }),
  kafkaJS: { logLevel: KafkaJS.logLevel.NOTHING } // it would print between what the program prints
})

// load writes 0, 1, 2 ... until SIGTERM, by an idempotent producer for each codec, which has the partition of the codec's
// place in the list. It prints "acknowledged N" now and then, "failed" with each error, and "done N" at its end.
async function load (topic, ...codecs) {
  const producers = codecs.map(codec => kafka.producer({
    'enable.idempotence': true, 'compression.codec': codec, 'linger.ms': 20
  }))
  await Promise.all(producers.map(producer => producer.connect()))
  let stopped = false
  process.once('SIGTERM', () => { stopped = true })
  let acknowledged = 0
  const sent = []
  const tell = () => { if (++acknowledged % TOLD_EACH === 0) console.log('acknowledged', acknowledged) }
  while (!stopped) {
    const partition = sent.length % codecs.length
    const message = { partition, key: codecs[partition], value: `${sent.length}` }
    sent.push(producers[partition].send({ topic, messages: [message] }).then(tell, error => {
      console.log('failed', error)
    }))
    await pause(WRITE_EVERY_MS)
  }
  await Promise.all(sent)
  await Promise.all(producers.map(producer => producer.disconnect()))
  console.log('done', sent.length)
}

function newConsumer (group, name, tellHeld = () => {}) {
  return kafka.consumer({
    'group.id': group, 'client.id': name, 'session.timeout.ms': 6000, 'heartbeat.interval.ms': 500,
    'auto.offset.reset': 'earliest', 'enable.auto.commit': false,
    rebalance_cb: (reason, assignment) => {
      const given = reason.code === KafkaJS.ErrorCodes.ERR__ASSIGN_PARTITIONS ? assignment : []
      tellHeld(given.map(one => one.partition))
    }
  })
}

// read prints "PARTITION VALUE" for each record of a topic from its beginning, until there were as many as are asked for.
async function read (topic, wanted) {
  const consumer = newConsumer(`readers of ${topic}`, 'reader')
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  let count = 0
  await new Promise((resolve, reject) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        if (count < +wanted) console.log(partition, message.value.toString())
        if (++count === +wanted) resolve()
      }
    }).catch(reject)
  })
  await consumer.disconnect()
}

// member prints "holds [PARTITIONS]" as often as the group is balanced, "PARTITION VALUE" for each record, and commits it
// then, until it is killed.
async function member (topic, group, name) {
  const consumer = newConsumer(group, name, held => { console.log(`holds [${held.join(' ')}]`) })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      console.log(partition, message.value.toString())
      await consumer.commitOffsets([{ topic, partition, offset: `${+message.offset + 1}` }]).catch(error => {
        console.log('not committed', error)
      })
    }
  })
}

// copy reads, writes and commits in transactions, as a member of a group, until it is killed. It begins anew after each
// error. It prints an object with the number of its commits as often as one is done.
async function copy (source, target, group, name) {
  let commits = 0
  for (;;) {
    const consumer = newConsumer(group, name)
    const producer = kafka.producer({
      'transactional.id': `${group}-${name}`,
      'transaction.timeout.ms': 20000,
      'socket.timeout.ms': 10000 // no more than the other, and a minute otherwise
    })
    const error = await new Promise(resolve => {
      copyBatches(consumer, producer, source, target, resolve, () => {
        console.log(JSON.stringify({ commits: { [name]: ++commits } }))
      }).catch(resolve)
    })
    console.log('anew', error)
    for (const client of [producer, consumer]) {
      await client.disconnect().catch(error => { console.log('not disconnected', error) })
    }
    await pause(AGAIN_MS)
  }
}

async function copyBatches (consumer, producer, source, target, fail, tell) {
  let failed = false
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [source] })
  await consumer.run({
    eachBatch: async ({ batch }) => {
      if (failed) return
      try {
        await copyBatch(consumer, producer, target, batch)
        tell()
      } catch (error) {
        failed = true
        fail(error)
      }
    }
  })
}

async function copyBatch (consumer, producer, target, { topic, partition, messages }) {
  await retried(() => producer.transaction())
  await producer.send({ topic: target, messages: messages.map(({ value }) => ({ partition, value })) })
  const partitions = [{ partition, offset: `${+messages.at(-1).offset + 1}` }]
  await retried(() => producer.sendOffsets({ consumer, topics: [{ topic, partitions }] }))
  await retried(() => producer.commit())
}

// retried asks again as long as the answer is that it may.
async function retried (ask) {
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      if (!error.retriable) throw error
      console.log('again', error)
    }
  }
}

// admin asks for what this client can, and prints what it was told as one line of JSON.
async function administer (topic, group) {
  const admin = kafka.admin()
  await admin.connect()
  const told = {}
  const wanted = {
    topic, numPartitions: 2, replicationFactor: 3, configEntries: [{ name: 'retention.ms', value: '3600000' }]
  }
  told.created = await admin.createTopics({ topics: [wanted] })
  told['created twice'] = await admin.createTopics({ topics: [wanted] })
  told['too many replicas'] = await refusal(admin.createTopics({
    topics: [{ topic: `${topic}-wide`, numPartitions: 1, replicationFactor: 9 }]
  }))
  told.listed = await eventually(async () => (await admin.listTopics()).includes(topic), true)
  told.described = await eventually(async () => {
    const [{ partitions }] = await admin.fetchTopicMetadata({ topics: [topic] })
    return partitions.map(one => one.replicas.length)
  }, [3, 3])
  told.ends = (await admin.fetchTopicOffsets(topic)).map(one => one.offset)
  const listed = await admin.listGroups()
  told['listed group'] = listed.groups.some(one => one.groupId === group)
  const { groups: [described] } = await admin.describeGroups([group])
  told['described group'] = [KafkaJS.ConsumerGroupStates.EMPTY === described.state, described.members.length]
  const [committed] = await admin.fetchOffsets({ groupId: group })
  told.committed = committed.partitions.map(one => [one.partition, +one.offset > 0])
  const [purged] = await admin.deleteTopicRecords({
    topic: committed.topic, partitions: [{ partition: 0, offset: '10' }]
  })
  told.purged = purged.lowWatermark
  told['begins at'] = (await admin.fetchTopicOffsets(committed.topic))[0].low
  told['deleted nobody'] = await refusal(admin.deleteGroups(['nobody']))
  told['deleted group'] = await refusal(admin.deleteGroups([group]))
  told['deleted topic'] = await refusal(admin.deleteTopics({ topics: [topic] }))
  told['deleted twice'] = await refusal(admin.deleteTopics({ topics: [topic] }))
  await admin.disconnect()
  console.log(JSON.stringify(told))
}

// eventually asks until it is told what is wanted: brokers learn of a change one after the other.
async function eventually (ask, wanted) {
  const until = Date.now() + SOON_MS
  for (;;) {
    const found = await ask().catch(error => error.type)
    if (JSON.stringify(found) === JSON.stringify(wanted) || Date.now() > until) return found
    await pause(100)
  }
}

// refusal is the name of the error that a broker has answered, "" for none.
const refusal = promise => promise.then(() => '', error => {
  const [first] = error.errors ?? error.groups?.map(one => one.error) ?? [error]
  return first.type ?? `${first}`
})

const verbs = { load, read, member, copy, admin: administer }
if (verbs[verb] === undefined || rest.length < 2) {
  console.error('usage: program.mjs load|read|member|copy|admin <bootstrap> <topic> ...')
  process.exit(2)
}
await verbs[verb](...rest)
