/**
 * Frees a large buffer at once instead of at the next garbage collection: in a flood every read brings half a megabyte, and
 * they would pile up faster than they are collected. Small buffers are left alone, as freeing them costs more than it
 * saves.
 * @param bytes No longer used, and in memory of its own. It is empty afterwards.
 */
export function release(bytes: Buffer): void {
  // Checked first: this runs for every request, and `buffer` creates an object when it is first read.
  if (bytes.length < BYTES_MIN) return
  const { buffer } = bytes
  if (buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length) buffer.transfer(0)
}

const BYTES_MIN = 32_768
