import { isIP } from 'node:net'

/**
 * True when the address is listed or inside a listed CIDR range. IPv4-mapped IPv6 addresses (`::ffff:a.b.c.d`) count as the
 * IPv4 address they contain, on either side. Compared bit by bit, not as text.
 */
export function isAddressListed(address: string, list: readonly string[]): boolean {
  const wanted = parseAddress(address)
  return wanted !== null && list.some((entry) => matches(wanted, entry))
}

/**
 * True when the URL leads to this machine. Such a URL must not go through a proxy from the environment (`HTTP_PROXY`), for
 * which loopback is another machine.
 */
export function isLoopbackUrl(url: string): boolean {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  return /(^|\.)localhost$/.test(host) || isAddressListed(host, ['127.0.0.0/8', '::1', '0.0.0.0', '::'])
}

/** @returns true for an address or a CIDR range, the entries of an allow list. */
export const isAddressOrRange = (text: string): boolean => parseRange(text) !== null

function matches(address: Uint8Array, entry: string): boolean {
  const range = parseRange(entry)
  if (range === null || range.bytes.length !== address.length) return false
  for (let bit = 0; bit < range.bits; bit += 8) {
    const unused = Math.max(0, bit + 8 - range.bits)
    const difference = (range.bytes[bit >> 3] as number) ^ (address[bit >> 3] as number) // both hold `bits` bits
    if (difference >> unused !== 0) return false
  }
  return true
}

function parseRange(text: string): { bytes: Uint8Array; bits: number } | null {
  const [, address, prefix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  const bytes = address === undefined ? null : parseAddress(address)
  if (bytes === null || address === undefined) return null
  // The prefix length counts bits of the written form: for a mapped address 96 more than for its IPv4 form.
  const written = isIP(address) === 6 ? 128 : 32
  const bits = (prefix === undefined ? written : Number(prefix)) - (written - bytes.length * 8)
  return bits < 0 || bits > bytes.length * 8 ? null : { bytes, bits }
}

/** 4 bytes of an IPv4 address, 16 of an IPv6 one; null when it is neither. Zone ids are not accepted. */
function parseAddress(text: string): Uint8Array | null {
  const version = isIP(text)
  if (version === 4) return Uint8Array.from(text.split('.'), Number)
  if (version !== 6 || text.includes('%')) return null
  const [head = '', tail] = text.split('::')
  const front = groupsOf(head)
  const back = tail === undefined ? [] : groupsOf(tail)
  const groups = [...front, ...new Array<number>(8 - front.length - back.length).fill(0), ...back]
  const bytes = Uint8Array.from(groups.flatMap((group) => [group >> 8, group & 255]))
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff
  return isMapped ? bytes.slice(12) : bytes
}

/** The 16-bit groups of one side of `::`; a dotted IPv4 ending counts as two. */
function groupsOf(text: string): number[] {
  if (text === '') return []
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)]
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number)
    return [(a << 8) | b, (c << 8) | d]
  })
}
