// kafkajs on every way into a secured cluster, for test_secured_matrix.py:
//
//   node secured.js <ways>
//
// The ways are a list in JSON, see secured_cells.py. Prints what was seen by each as one line of JSON.
'use strict'

const fs = require('node:fs')
const { ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const RECORDS = 10
const range = [...Array(RECORDS).keys()]
const messages = kind => range.map(number => ({ value: `${kind}-${number}`, partition: number % 2 }))

function reach (way) {
  const ssl = way.protocol.endsWith('SSL') && {
    ca: fs.readFileSync(way.ca),
    ...(way.certificate && { cert: fs.readFileSync(way.certificate), key: fs.readFileSync(way.key) })
  }
  const secret = way.mechanism === 'OAUTHBEARER'
    ? { oauthBearerProvider: async () => ({ value: way.password }) }
    : { username: way.user, password: way.password }
  const sasl = way.mechanism ? { mechanism: way.mechanism.toLowerCase(), ...secret } : undefined
  return new Kafka({ brokers: way.bootstrap.split(','), ssl, sasl, logLevel: logLevel.NOTHING })
}

async function connected (client, work) {
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.disconnect()
  }
}

const write = (kafka, topic) => connected(
  kafka.producer({ idempotent: true, maxInFlightRequests: 1 }),
  producer => producer.send({ topic, messages: messages('plain') })
)

const transact = (kafka, topic) => connected(
  kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }),
  async producer => {
    for (const kind of ['committed', 'aborted']) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: messages(kind) })
      await (kind === 'committed' ? transaction.commit() : transaction.abort())
    }
  }
)

const read = (kafka, topic) => connected(
  kafka.consumer({ groupId: topic, maxWaitTimeInMs: 200 }),
  async consumer => {
    const found = []
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        eachMessage: async ({ message }) => {
          found.push(message.value.toString().split('-')[0])
          if (found.length === 2 * RECORDS) resolve()
        }
      }).catch(reject)
    })
    return found.sort()
  }
)

// What is asked, once it is as wanted: another broker than the one that changed it may answer later.
async function settled (wanted, ask) {
  const end = Date.now() + 10000
  let found
  do {
    found = await ask().catch(error => error.type || error.name)
    if (found === wanted) break
    await new Promise(resolve => setTimeout(resolve, 20))
  } while (Date.now() < end)
  return found
}

async function walk (way) {
  const kafka = reach(way)
  const { topic } = way
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  return connected(kafka.admin(), async admin => {
    const told = {}
    await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 2 }], waitForLeaders: true })
    told.partitions = await settled(2, async () =>
      (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length)
    await write(kafka, topic)
    await transact(kafka, topic)
    told.read = await read(kafka, topic)
    const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
    told.committed = partitions.reduce((sum, one) => sum + +one.offset, 0) >= 2 * RECORDS
    const configEntries = [{ name: 'retention.ms', value: '86400000' }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
    told.setting = await settled('86400000', async () => {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false, resources: [{ ...resource, configNames: ['retention.ms'] }]
      })
      return resources[0].configEntries[0].configValue
    })
    told.denied = await connected(kafka.producer(), producer => producer.send({
      topic: way.denied, messages: [{ value: 'denied' }]
    }).then(() => 'nothing', error => error.cause?.type ?? error.name))
    await admin.deleteTopics({ topics: [topic] })
    told.deleted = await settled(true, async () => !(await admin.listTopics()).includes(topic))
    return told
  })
}

async function main () {
  const told = {}
  for (const way of JSON.parse(process.argv[2])) told[way.name] = await walk(way)
  return told
}

main().then(
  told => { console.log(JSON.stringify(told)) },
  error => { console.error(error); process.exit(1) }
)
