/**
 * The machines that a release has binaries for. `name` names archives and npm packages (`@tollgate/linux-x64`).
 *
 * What Bun makes for darwin-x64 carries the signature of the Bun that it was made from. It does not match, and macOS may end
 * such a program at its start: it is built, so that it can be signed on a Mac, and is not published.
 */
export const TARGETS = [
  {
    name: 'linux-x64',
    runtime: '@oven/bun-linux-x64',
    os: 'linux',
    cpu: 'x64',
    libc: 'glibc',
    image: 'amd64',
  },
  {
    name: 'linux-arm64',
    runtime: '@oven/bun-linux-aarch64',
    os: 'linux',
    cpu: 'arm64',
    libc: 'glibc',
    image: 'arm64',
  },
  { name: 'linux-x64-musl', runtime: '@oven/bun-linux-x64-musl', os: 'linux', cpu: 'x64', libc: 'musl' },
  {
    name: 'linux-arm64-musl',
    runtime: '@oven/bun-linux-aarch64-musl',
    os: 'linux',
    cpu: 'arm64',
    libc: 'musl',
  },
  { name: 'darwin-arm64', runtime: '@oven/bun-darwin-aarch64', os: 'darwin', cpu: 'arm64' },
  { name: 'darwin-x64', runtime: '@oven/bun-darwin-x64', os: 'darwin', cpu: 'x64', isUnsigned: true },
] as const satisfies Target[]

export type Target = {
  name: string
  /** The npm package with the Bun that the binary is made of. Its version and checksum are in bun.lock. */
  runtime: string
  os: 'linux' | 'darwin'
  cpu: 'x64' | 'arm64'
  libc?: 'glibc' | 'musl'
  /** What Docker calls the architecture; absent = no image is made of it. */
  image?: 'amd64' | 'arm64'
  /** True = not to be published. */
  isUnsigned?: true
}
