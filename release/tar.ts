export type Entry = { path: string; bytes: Uint8Array; isProgram?: boolean }

/**
 * An archive (ustar, gzip) whose bytes depend on nothing but the entries and the time: no owner, no other times, and a
 * compressor that Bun brings along.
 * @param atSeconds The time that all entries get.
 */
export function tarGz(entries: readonly Entry[], atSeconds: number): Uint8Array {
  const parts = entries.flatMap(({ path, bytes, isProgram }) => {
    const padding = new Uint8Array((BLOCK - (bytes.length % BLOCK)) % BLOCK)
    return [
      headOf({ path, size: bytes.length, mode: isProgram === true ? 0o755 : 0o644, atSeconds }),
      bytes,
      padding,
    ]
  })
  return Bun.gzipSync(Buffer.concat([...parts, new Uint8Array(2 * BLOCK)]), {
    library: 'libdeflate',
    level: 6,
  })
}

const BLOCK = 512

function headOf(entry: { path: string; size: number; mode: number; atSeconds: number }): Uint8Array {
  const head = Buffer.alloc(BLOCK)
  if (Buffer.byteLength(entry.path) > 100) throw new Error(`${entry.path} is too long for an archive`)
  const octal = (value: number, at: number, length: number) =>
    head.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at)
  head.write(entry.path, 0)
  octal(entry.mode, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(entry.size, 124, 12)
  octal(entry.atSeconds, 136, 12)
  head.write('        ', 148) // the checksum counts as blanks
  head.write('0', 156)
  head.write('ustar\x0000', 257)
  const sum = head.reduce((total, byte) => total + byte, 0)
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return head
}
