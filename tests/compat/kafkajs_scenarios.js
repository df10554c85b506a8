// kafkajs: producer, group consumer, admin. Arguments: bootstrap servers, parts of names of scenarios (default: all).
// Prints a line of JSON with the names of all that will run, then one for each.

'use strict'

const assert = require('node:assert')
const { randomUUID } = require('node:crypto')
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const LIMIT_MS = 180_000
// Scenarios judge what happens, not how fast: the machine may be busy with other things.
const WAIT_MS = 60_000
const PARTITIONS = 4
const RECORDS = 200
// In the past, but not so far that retention takes it.
const FIRST_TIMESTAMP_MS = Date.now() - 3_600_000
const [bootstrap, ...wanted] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
const fresh = (what) => `kafkajs-${what}-${randomUUID().slice(0, 8)}`
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function eventually(look, what) {
  const deadline = Date.now() + WAIT_MS
  for (;;) {
    if (await look()) return
    assert(Date.now() < deadline, `waited ${WAIT_MS / 1000} s for: ${what}`)
    await pause(100)
  }
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function freshTopic(what) {
  const topic = fresh(what)
  await withAdmin((admin) =>
    admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 3 }] })
  )
  return topic
}

async function fill(topic, settings = {}) {
  const { compression, ...producerSettings } = settings
  const producer = kafka.producer(producerSettings)
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, number) => ({
    key: `k${number}`,
    value: `value ${number}`,
    partition: number % PARTITIONS,
    headers: { number: String(number) },
    timestamp: String(FIRST_TIMESTAMP_MS + number),
  }))
  const acknowledged = await producer.send({ topic, acks: -1, compression, messages })
  assert(acknowledged.every((report) => report.errorCode === 0 && report.baseOffset === '0'))
  await producer.disconnect()
}

async function startMember(groupId, topic, onRecord) {
  const member = { consumer: kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 500 }), owned: [] }
  member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = payload.memberAssignment[topic] || []
  })
  await member.consumer.connect()
  await member.consumer.subscribe({ topics: [topic], fromBeginning: true })
  await member.consumer.run({ eachMessage: async ({ partition, message }) => onRecord(partition, message) })
  return member
}

function produceAndConsume(settings) {
  return async () => {
    const topic = await freshTopic('read')
    await fill(topic, settings)
    const found = new Map()
    const member = await startMember(fresh('group'), topic, (partition, message) => {
      const number = Number(message.offset) * PARTITIONS + partition
      assert.strictEqual(message.value.toString(), `value ${number}`)
      assert.strictEqual(message.key.toString(), `k${number}`)
      assert.strictEqual(message.headers.number.toString(), String(number))
      assert.strictEqual(message.timestamp, String(FIRST_TIMESTAMP_MS + number))
      found.set(number, message)
    })
    await eventually(() => found.size === RECORDS, 'all records')
    await member.consumer.disconnect()
  }
}

async function commitAndResume() {
  const topic = await freshTopic('resume')
  const groupId = fresh('group')
  await fill(topic)
  let seen = 0
  const first = await startMember(groupId, topic, () => (seen += 1))
  await eventually(() => seen === RECORDS, 'all records')
  await first.consumer.stop() // commits
  await first.consumer.disconnect()
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'after the commit', partition: 0 }] })
  await producer.disconnect()
  const later = []
  const second = await startMember(groupId, topic, (_, message) => later.push(message.value.toString()))
  await eventually(() => later.length > 0, 'the record after the commit')
  await second.consumer.disconnect()
  assert.deepStrictEqual(later, ['after the commit'])
}

// Records go from one topic to another, in transactions with the offsets of the group. Every third is aborted and repeated.
async function consumeTransformProduce() {
  const source = await freshTopic('source')
  const target = await freshTopic('target')
  const groupId = fresh('group')
  await fill(source)
  const producer = kafka.producer({ transactionalId: fresh('writer'), maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 500, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  let moved = 0
  let attempts = 0
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      const messages = batch.messages.slice(0, 20)
      const offset = String(Number(messages[messages.length - 1].offset) + 1)
      for (;;) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: target, messages: messages.map(({ value }) => ({ value, partition: batch.partition })) })
        await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: batch.partition, offset }] }] })
        attempts += 1
        if (attempts % 3 !== 0) {
          await transaction.commit()
          break
        }
        await transaction.abort()
      }
      resolveOffset(messages[messages.length - 1].offset)
      moved += messages.length
      await heartbeat()
    },
  })
  await eventually(() => moved >= RECORDS, 'all records to be moved')
  await consumer.disconnect()
  await producer.disconnect()
  const found = []
  const member = await startMember(fresh('group'), target, (_, message) => found.push(message.value.toString()))
  await eventually(() => found.length >= RECORDS, 'all records in the target')
  await member.consumer.disconnect()
  assert.strictEqual(found.length, RECORDS)
  assert.strictEqual(new Set(found).size, RECORDS)
  const committed = await withAdmin((admin) => admin.fetchOffsets({ groupId, topics: [source] }))
  const sum = committed[0].partitions.reduce((total, { offset }) => total + Number(offset), 0)
  assert.strictEqual(sum, RECORDS)
}

async function rebalance() {
  const topic = await freshTopic('rebalance')
  const groupId = fresh('group')
  const shared = (...members) =>
    members.every((member) => member.owned.length === PARTITIONS / members.length) &&
    new Set(members.flatMap((member) => member.owned)).size === PARTITIONS
  const first = await startMember(groupId, topic, () => {})
  await eventually(() => shared(first), 'one member to have all partitions')
  const second = await startMember(groupId, topic, () => {})
  await eventually(() => shared(first, second), 'two members to have half each')
  await first.consumer.disconnect()
  await eventually(() => shared(second), 'the other to take over')
  await second.consumer.disconnect()
}

async function administration() {
  await withAdmin(async (admin) => {
    const topic = await freshTopic('admin')
    assert((await admin.listTopics()).includes(topic))
    await fill(topic)
    const offsets = await admin.fetchTopicOffsets(topic)
    assert(offsets.every((found) => found.low === '0' && found.high === String(RECORDS / PARTITIONS)))
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '30' }] })
    assert.strictEqual((await admin.fetchTopicOffsets(topic)).find((found) => found.partition === 0).low, '30')
    await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 2 }] })
    await eventually(
      async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === PARTITIONS + 2,
      'two more partitions'
    )
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '60000' }] }],
    })
    await eventually(async () => {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
      })
      return resources[0].configEntries[0].configValue === '60000'
    }, 'the setting to hold')
    await admin.deleteTopics({ topics: [topic] })
    await eventually(async () => !(await admin.listTopics()).includes(topic), 'the topic to be gone')
  })
}

async function groupsOfAdmin() {
  await withAdmin(async (admin) => {
    const topic = await freshTopic('groups')
    const groupId = fresh('group')
    await fill(topic)
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '7' }] })
    const [kept] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.strictEqual(kept.partitions.find((found) => found.partition === 0).offset, '7')
    assert((await admin.listGroups()).groups.some((group) => group.groupId === groupId))
    assert.strictEqual((await admin.describeGroups([groupId])).groups[0].state, 'Empty')
    await admin.deleteGroups([groupId])
    assert(!(await admin.listGroups()).groups.some((group) => group.groupId === groupId))
  })
}

const scenarios = {
  'produce, and consume in a group': produceAndConsume({}),
  'the same, gzip': produceAndConsume({ compression: CompressionTypes.GZIP }),
  'the same, idempotent': produceAndConsume({ idempotent: true, maxInFlightRequests: 1 }),
  'group commits and resumes': commitAndResume,
  'group rebalances': rebalance,
  'consume, transform, produce in transactions': consumeTransformProduce,
  'admin: topics, records, settings': administration,
  'admin: groups': groupsOfAdmin,
}

async function main() {
  const names = Object.keys(scenarios).filter((name) => !wanted.length || wanted.some((part) => name.includes(part)))
  console.log(JSON.stringify({ scenarios: names }))
  for (const name of names) {
    const started = Date.now()
    let outcome = 'passed'
    let note = ''
    const late = pause(LIMIT_MS).then(() => {
      throw new Error(`not done after ${LIMIT_MS / 1000} s`)
    })
    late.catch(() => {}) // lost the race
    try {
      await Promise.race([scenarios[name](), late])
    } catch (failure) {
      outcome = 'failed'
      note = String(failure)
      console.error(failure)
    }
    console.log(JSON.stringify({ case: name, outcome, note, seconds: (Date.now() - started) / 1000 }))
  }
  process.exit(0) // whatever a scenario left running
}

main()
