import { createHash } from 'node:crypto'
import { COUNT_MAX } from '../lib/bounds.ts'
import { TAGS } from './buckets.ts'
import type { Answer, Entry, Result } from './engine.ts'

/** A process that nobody spoke to for so long may have slept while another took over. */
const SILENCE_MS = 1_000
/** How long a window is kept after its end. */
const GRACE_MS = 60_000
/** A bucket that nobody spoke to for a week is of a fleet that has ended. */
const BUCKET_MS = 7 * 86_400_000

/**
 * One exchange with Redis: the script that carries it out. `take-message.ts` says it.
 *
 * - Keys: the bucket's, then each entry's window. All have the bucket's tag, so that a cluster has them in one slot.
 * - Arguments: server, epoch, now, loose ms, share, learn ms, the fleet's id ('' = do not ask), then all entries in one
 *   string, eight doubles each.
 * - Reply: `[0, answers]`, or `[learn, answers]` of a bucket that learns; four doubles each: given, gift, sum, loose until; `[-1, epoch]` = stale; `[-2]` =
 *   foreign. Doubles, because the client reads whole numbers wrong from 2^53 - 8 on.
 *
 * A bucket is a hash: `fleet`, `run` and `at` (which process counted here last, and when by its clock), `learn` (until when),
 * `past` (the same by the time of the servers) and for each server its epoch with the day it last spoke. A window is a hash: `u` sum, `l` loose until, and what each
 * server holds. Nothing is written for an entry that changes nothing. Windows expire by relative time, because the clock of
 * a process may be wrong. Windows that end before `past` are given nothing: whoever holds some of them no longer says so.
 */
export const TAKE = `
local server, epoch = ARGV[1], tonumber(ARGV[2])
local now, loose_ms, share = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local fleet, entries = ARGV[7], ARGV[8]
local max, min, floor, format, call = math.max, math.min, math.floor, string.format, redis.call

local bucket = KEYS[1]
local time = call('TIME')
local clock = time[1] * 1000 + floor(time[2] / 1000)
local day = floor(clock / 86400000)
local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local known = call('HMGET', bucket, 'fleet', 'run', 'at', 'learn', 'e' .. server, 'past')
if fleet ~= '' and known[1] and known[1] ~= fleet then return {-2} end
local known_epoch, known_day
if known[5] then
  known_epoch, known_day = string.match(known[5], '(%d+) (%d+)')
  if epoch < tonumber(known_epoch) then return {-1, tonumber(known_epoch)} end
end

local write = {'at', clock}
local learn_until = tonumber(known[4] or 0)
local at = tonumber(known[3] or 0)
local past = tonumber(known[6] or 0)
if known[2] ~= run or clock - at > ${SILENCE_MS} or clock < at then
  learn_until = clock + tonumber(ARGV[6])
  past = max(past, now + tonumber(ARGV[6]))
  write = {'at', clock, 'run', run, 'learn', learn_until, 'past', past}
end
if fleet ~= '' and not known[1] then
  write[#write + 1] = 'fleet'
  write[#write + 1] = fleet
end
local is_new = epoch ~= tonumber(known_epoch) or day ~= tonumber(known_day)
if is_new then
  write[#write + 1] = 'e' .. server
  write[#write + 1] = string.format('%d %d', epoch, day)
end
call('HSET', bucket, unpack(write))
if is_new then
  call('PEXPIRE', bucket, ${BUCKET_MS})
  if not known_epoch then
    -- Servers that nobody heard of for days have ended, and so have their messages.
    local fields = call('HGETALL', bucket)
    for i = 1, #fields, 2 do
      local last = string.match(fields[i + 1], '^%d+ (%d+)$')
      if last and tonumber(last) < day - 2 then call('HDEL', bucket, fields[i]) end
    end
  end
end

local learns = clock < learn_until
local answers = {}
local position = 1
for i = 2, #KEYS do
  local key = KEYS[i]
  local rest, limit, said, owed, asked, least, ahead, flags
  rest, limit, said, owed, asked, least, ahead, flags, position = struct.unpack('<dddddddd', entries, position)
  local window = call('HMGET', key, 'u', server, 'l')
  local sum, stored, loose = (window[1] or 0) + 0, (window[2] or 0) + 0, (window[3] or 0) + 0

  local given = said + owed
  if flags >= 2 then
    given = stored + owed
  elseif learns then
    given = max(stored, given)
  end
  sum = sum + given - stored
  local free = 0
  if not learns and now + rest > past then free = max(0, limit - sum) end

  local gift, is_loose = min(asked, free), false
  if gift < least then
    gift = 0
  elseif gift < asked then
    is_loose = gift > 0
  else
    local for_ahead = min(ahead, floor((free - gift) / share))
    gift = gift + for_ahead
    is_loose = for_ahead > 0 or (flags % 2 == 1 and asked > 0)
  end
  given = given + gift
  sum = min(sum + gift, ${COUNT_MAX})

  if is_loose and now + loose_ms > loose then
    loose = now + loose_ms
    call('HSET', key, 'u', format('%d', sum), server, format('%d', given), 'l', loose)
    if not window[1] then call('PEXPIRE', key, max(0, rest) + ${GRACE_MS}) end
  elseif given ~= stored then
    call('HSET', key, 'u', format('%d', sum), server, format('%d', given))
    if not window[1] then call('PEXPIRE', key, max(0, rest) + ${GRACE_MS}) end
  end
  answers[i - 1] = struct.pack('<dddd', given, gift, sum, loose)
end
return {learns and learn_until or 0, table.concat(answers)}
`

export const TAKE_SHA = createHash('sha1').update(TAKE).digest('hex')

/** The hash of a bucket. */
export const bucketKey = (bucket: number) => `t:{${TAGS[bucket]}}`

/** @throws Error when the reply makes no sense. */
export function readReply(
  reply: unknown,
  entries: readonly Entry[],
): Result | { kind: 'stale'; epoch: number } | { kind: 'foreign' } {
  if (!Array.isArray(reply)) throw new Error('the reply of the script is no list')
  const [first, second] = reply
  if (first === -1) return { kind: 'stale', epoch: Number(second) }
  if (first === -2) return { kind: 'foreign' }
  const length = 4 * entries.length
  if (typeof first !== 'number' || first < 0 || !Buffer.isBuffer(second) || second.length !== 8 * length)
    throw new Error('the reply of the script makes no sense')
  const numbers = new Float64Array(length)
  new Uint8Array(numbers.buffer).set(second) // a copy, because doubles must be aligned
  const answers: Answer[] = []
  for (let at = 0; at < length; at += 4) {
    const { endMs } = entries[at / 4] as Entry // as many as answers
    const number = (i: number) => numbers[at + i] as number // in range
    answers.push({ endMs, given: number(0), gift: number(1), sum: number(2), looseUntilMs: number(3) })
  }
  return { kind: 'answered', isLearning: first > 0, learning: first, answers }
}
