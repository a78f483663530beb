/** A fingerprint that names a vault key and reveals nothing about it: `mk_3f6a09c1d2e4b587`. @param bytes 32. */
export function vaultKeyId(bytes: Uint8Array): string {
  const hash = new Bun.CryptoHasher('sha256').update('tollgate master key').update(bytes).digest('hex')
  return `mk_${hash.slice(0, 16)}`
}
