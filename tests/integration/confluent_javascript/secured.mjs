// @confluentinc/kafka-javascript on every way into a secured cluster, for test_confluent_javascript.py:
//
//   node secured.mjs <ways>
//
// The ways are a list in JSON, see secured_cells.py. Prints what was seen by each as one line of JSON. Its admin knows no
// settings.
import { setTimeout as pause } from 'node:timers/promises'

import { KafkaJS } from '@confluentinc/kafka-javascript'

import { reach } from './reach.mjs'

const RECORDS = 10
const SETTLE_MS = 10000
const ASKED_MS = 30000
const range = [...Array(RECORDS).keys()]
const messages = kind => range.map(number => ({ value: `${kind}-${number}`, partition: number % 2 }))

async function connected (client, work) {
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.disconnect()
  }
}

const write = (kafka, topic) => connected(
  kafka.producer({ 'enable.idempotence': true }),
  producer => producer.send({ topic, messages: messages('plain') })
)

const transact = (kafka, topic) => connected(
  kafka.producer({ 'transactional.id': topic }),
  async producer => {
    for (const kind of ['committed', 'aborted']) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: messages(kind) })
      await (kind === 'committed' ? transaction.commit() : transaction.abort())
    }
  }
)

const read = (kafka, topic) => connected(
  kafka.consumer({ 'group.id': topic, 'auto.offset.reset': 'earliest', 'enable.auto.commit': false }),
  async consumer => {
    const found = []
    const ends = [0, 0]
    await consumer.subscribe({ topics: [topic] })
    await new Promise((resolve, reject) => {
      consumer.run({
        eachMessage: async ({ partition, message }) => {
          found.push(message.value.toString().split('-')[0])
          ends[partition] = +message.offset + 1
          if (found.length === 2 * RECORDS) resolve()
        }
      }).catch(reject)
    })
    await consumer.commitOffsets(ends.map((offset, partition) => ({ topic, partition, offset: `${offset}` })))
    return found.sort()
  }
)

// What is asked, once it is as wanted: another broker than the one that changed it may answer later.
async function settled (wanted, ask) {
  const end = Date.now() + SETTLE_MS
  for (;;) {
    const found = await ask().catch(error => error.type ?? `${error}`)
    if (found === wanted || Date.now() > end) return found
    await pause(20)
  }
}

// While its admin waits for an answer it holds a lock that its token needs, too. So it is asked nothing before it has one.
function withToken (options) {
  const token = options.oauthbearer_token_refresh_cb
  if (!token) return { options, hasToken: Promise.resolve() }
  let tell
  const hasToken = new Promise(resolve => { tell = resolve })
  const given = async () => {
    setImmediate(tell) // which is after what is done with the token that is returned
    return token()
  }
  return { options: { ...options, oauthbearer_token_refresh_cb: given }, hasToken }
}

async function walk (way) {
  const { options, hasToken } = withToken(reach(way))
  const kafka = new KafkaJS.Kafka({ ...options, log_level: 0 })
  const { topic } = way
  return connected(kafka.admin(), async admin => {
    await hasToken
    const told = {}
    await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 2 }], timeout: ASKED_MS })
    told.partitions = await settled(2, async () =>
      (await admin.fetchTopicMetadata({ topics: [topic] }))[0].partitions.length)
    await write(kafka, topic)
    await transact(kafka, topic)
    told.read = await read(kafka, topic)
    const [{ partitions }] = await admin.fetchOffsets({ groupId: topic })
    told.committed = partitions.reduce((sum, one) => sum + +one.offset, 0) >= 2 * RECORDS
    told.denied = await connected(kafka.producer({ 'enable.idempotence': false }), producer => producer.send({
      topic: way.denied, messages: [{ value: 'denied' }]
    }).then(() => 'nothing', error => (error.type ?? `${error}`).replace(/^ERR_/, '')))
    await admin.deleteTopics({ topics: [topic], timeout: ASKED_MS })
    told.deleted = await settled(true, async () => !(await admin.listTopics()).includes(topic))
    return told
  })
}

const told = {}
for (const way of JSON.parse(process.argv[2])) told[way.name] = await walk(way)
console.log(JSON.stringify(told))
process.exit(0)
