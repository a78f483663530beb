import type { Entry, Exchange } from './engine.ts'
import { bucketKey, TAKE, TAKE_SHA } from './take-script.ts'

/** What the script is told about the server, besides the exchange. */
export type Speaker = { serverId: number; epoch: number; learnMs: number; fleetId: string }

/**
 * The bytes of one EVALSHA, or EVAL with the whole script, with the arguments that the script's head lists. The client would
 * encode each argument by itself, which takes longer than all else that a message costs.
 */
export function takeMessage(
  command: 'eval' | 'evalsha',
  { bucket, nowMs, looseMs, share, entries }: Exchange,
  { serverId, epoch, learnMs, fleetId }: Speaker,
): Buffer {
  const prefix = bucketKey(bucket)
  const script = command === 'eval' ? TAKE : TAKE_SHA
  const words = [serverId, epoch, nowMs, looseMs, share, learnMs, fleetId]
  const head = `*${4 + entries.length + words.length + 1}\r\n${[command, script, entries.length + 1, prefix].map(bulk).join('')}`
  const packedBytes = entries.length * NUMBERS * 8
  const tail = `${words.map(bulk).join('')}$${packedBytes}\r\n`
  const keyBytes = prefix.length + CELL_CHARACTERS + END_CHARACTERS_MAX + 7
  const message = Buffer.allocUnsafe(
    Buffer.byteLength(head) + entries.length * keyBytes + Buffer.byteLength(tail) + packedBytes + 2,
  )
  let at = message.write(head)
  let lastEndMs = Number.NaN
  let end = ''
  let length = ''
  for (const entry of entries) {
    if (entry.endMs !== lastEndMs) {
      lastEndMs = entry.endMs
      end = `${lastEndMs.toString(36)}\r\n`
      length = `$${prefix.length + CELL_CHARACTERS + end.length - 2}\r\n${prefix}`
    }
    at = writeText(message, at, length)
    at = writeCell(message, at, entry)
    at = writeText(message, at, end)
  }
  at += message.write(tail, at)
  const packed = new Float64Array(entries.length * NUMBERS)
  for (let i = 0; i < entries.length; i++) pack(entries[i] as Entry, nowMs, packed, i * NUMBERS) // in range
  message.set(new Uint8Array(packed.buffer), at)
  at += packedBytes
  at += message.write('\r\n', at)
  return message.subarray(0, at)
}

const bulk = (word: string | number) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`

/** ASCII. @returns where it ends. */
function writeText(message: Buffer, from: number, text: string): number {
  for (let i = 0; i < text.length; i++) message[from + i] = text.charCodeAt(i)
  return from + text.length
}

/** The 128 bits of a cell's name in base64url. @returns where they end. */
function writeCell(message: Buffer, from: number, { h0, h1, h2, h3 }: Entry): number {
  let at = from
  const write = (bits: number, characters: number) => {
    for (let shift = 6 * (characters - 1); shift >= 0; shift -= 6)
      message[at++] = BASE64URL[(bits >>> shift) & 63] as number // in range
  }
  write(h0 >>> 2, 5)
  write(((h0 & 0x3) << 28) | (h1 >>> 4), 5)
  write(((h1 & 0xf) << 26) | (h2 >>> 6), 5)
  write(((h2 & 0x3f) << 24) | (h3 >>> 8), 5)
  write((h3 & 0xff) << 4, 2)
  return at
}

/** Doubles of an entry, in the order in which the script reads them. */
const NUMBERS = 8

function pack(entry: Entry, nowMs: number, packed: Float64Array, at: number): void {
  packed[at] = entry.endMs - nowMs
  packed[at + 1] = entry.limit
  packed[at + 2] = entry.given
  packed[at + 3] = entry.owed
  packed[at + 4] = entry.asked
  packed[at + 5] = entry.least
  packed[at + 6] = entry.ahead
  packed[at + 7] = (entry.isTentative ? 1 : 0) + (entry.hasForgotten ? 2 : 0)
}

const BASE64URL = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_')
const CELL_CHARACTERS = 22
/** Of 2^46 in base 36. */
const END_CHARACTERS_MAX = 9
