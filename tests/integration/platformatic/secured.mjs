// @platformatic/kafka on every way into a secured cluster, for test_secured_matrix.py:
//
//   node secured.mjs <ways>
//
// The ways are a list in JSON, see secured_cells.py. Prints what was seen by each as one line of JSON.
import { setTimeout as pause } from 'node:timers/promises'

import {
  Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, IncrementalAlterConfigOperationTypes,
  MessagesStreamFallbackModes, MessagesStreamModes, Producer
} from '@platformatic/kafka'

import { reach } from './reach.mjs'

const RECORDS = 10
const SETTLE_MS = 10000
const range = [...Array(RECORDS).keys()]
const messages = (topic, kind) => range.map(number => ({
  topic, partition: number % 2, value: Buffer.from(`${kind}-${number}`)
}))

async function using (client, work) {
  try {
    return await work(client)
  } finally {
    await (client instanceof Consumer ? client.close(true) : client.close())
  }
}

const write = (base, topic) => using(
  new Producer({ ...base, idempotent: true }),
  producer => producer.send({ messages: messages(topic, 'plain') })
)

// Without an id and an epoch this client asks to go on with producer id 0, which is somebody else's.
const transact = (base, topic) => using(
  new Producer({ ...base, idempotent: true, transactionalId: topic, producerId: -1n, producerEpoch: -1 }),
  async producer => {
    for (const kind of ['committed', 'aborted']) {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: messages(topic, kind) })
      await (kind === 'committed' ? transaction.commit() : transaction.abort())
    }
  }
)

const read = (base, topic) => using(
  new Consumer({ ...base, groupId: topic, autocommit: false, maxWaitTime: 200 }),
  async consumer => {
    const found = []
    const stream = await consumer.consume({
      topics: [topic],
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
      isolationLevel: FetchIsolationLevels.READ_COMMITTED
    })
    for await (const message of stream) {
      await message.commit()
      found.push(message.value.toString().split('-')[0])
      if (found.length === 2 * RECORDS) break
    }
    return found.sort()
  }
)

// What is asked, once it is as wanted: another broker than the one that changed it may answer later.
async function settled (wanted, ask) {
  const end = Date.now() + SETTLE_MS
  for (;;) {
    const found = await ask().catch(error => `${error}`)
    if (found === wanted || Date.now() > end) return found
    await pause(20)
  }
}

const names = error => [...(error.apiId ? [error.apiId] : []), ...(error.errors ?? []).flatMap(names)]

async function walk (way) {
  const base = { ...reach(way), retries: 20, retryDelay: 200 }
  const { topic } = way
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
  return using(new Admin(base), async admin => {
    const told = {}
    await admin.createTopics({ topics: [topic], partitions: 2, replicas: 2 })
    told.partitions = await settled(2, async () =>
      (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic).partitionsCount)
    await write(base, topic)
    await transact(base, topic)
    told.read = await read(base, topic)
    const [{ topics }] = await admin.listConsumerGroupOffsets({ groups: [topic] })
    const committed = topics.flatMap(one => one.partitions).reduce((sum, one) => sum + one.committedOffset, 0n)
    told.committed = committed >= 2n * BigInt(RECORDS)
    const change = {
      name: 'retention.ms', configOperation: IncrementalAlterConfigOperationTypes.SET, value: '86400000'
    }
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [change] }] })
    told.setting = await settled('86400000', async () => {
      const [found] = await admin.describeConfigs({
        resources: [{ ...resource, configurationKeys: ['retention.ms'] }]
      })
      return found.configs[0].value
    })
    told.denied = await using(new Producer({ ...base, retries: 0 }), producer => producer.send({
      messages: [{ topic: way.denied, value: Buffer.from('denied') }]
    }).then(() => 'nothing', error => names(error)[0] ?? `${error}`))
    await admin.deleteTopics({ topics: [topic] })
    told.deleted = await settled(true, async () => !(await admin.listTopics()).includes(topic))
    return told
  })
}

const told = {}
for (const way of JSON.parse(process.argv[2])) told[way.name] = await walk(way)
console.log(JSON.stringify(told))
process.exit(0)
