export const BASE58_ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'

/**
 * Bytes as base58 text (the Bitcoin alphabet): a big-endian number in base 58, with one `1` for each leading zero byte.
 * Works on limbs of 16 bits and six digits at a time, so that every step stays exact in a double.
 */
export function encodeBase58(bytes: Uint8Array): string {
  let zeros = 0
  while (zeros < bytes.length && bytes[zeros] === 0) zeros++
  const limbs: number[] = []
  // With an odd number of bytes, the first limb has one byte.
  let at = zeros
  if ((bytes.length - zeros) % 2 === 1) limbs.push(bytes[at++] as number) // in range: zeros < length here
  for (; at < bytes.length; at += 2) limbs.push(((bytes[at] as number) << 8) | (bytes[at + 1] as number)) // pairs
  let text = ''
  let first = 0
  while (first < limbs.length) {
    let rest = 0
    for (let i = first; i < limbs.length; i++) {
      const value = rest * 65536 + (limbs[i] as number) // in range
      const quotient = Math.floor(value / SIX_DIGITS)
      limbs[i] = quotient
      rest = value - quotient * SIX_DIGITS
    }
    while (first < limbs.length && limbs[first] === 0) first++
    const isLast = first >= limbs.length
    let digits = ''
    for (let i = 0; i < 6 && (!isLast || rest > 0); i++) {
      const next = Math.floor(rest / 58)
      digits = BASE58_ALPHABET.charAt(rest - next * 58) + digits
      rest = next
    }
    text = digits + text
  }
  return '1'.repeat(zeros) + text
}

const SIX_DIGITS = 58 ** 6

/** @returns the bytes, or null when the text has a character outside the alphabet. */
export function decodeBase58(text: string): Uint8Array | null {
  let zeros = 0
  while (zeros < text.length && text[zeros] === '1') zeros++
  const bytes: number[] = []
  for (const character of text.slice(zeros)) {
    let carry = BASE58_ALPHABET.indexOf(character)
    if (carry < 0) return null
    for (let i = bytes.length - 1; i >= 0; i--) {
      carry += (bytes[i] as number) * 58 // in range
      bytes[i] = carry & 255
      carry >>= 8
    }
    for (; carry > 0; carry >>= 8) bytes.unshift(carry & 255)
  }
  return Uint8Array.from([...new Uint8Array(zeros), ...bytes])
}
