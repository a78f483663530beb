/**
 * The Dockerfile beside the released binaries: the last stage of the one in the clone, which copies the binary of its
 * architecture instead of building one.
 * @throws Error when that stage copies something that is not known here.
 */
export function releasedDockerfile(dockerfile: string, commit: string): string {
  const stage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM ') + 1)
  const lines = stage.split('\n').map((line) => {
    if (line.startsWith('FROM ')) return `${line}\nARG TARGETARCH`
    if (line.startsWith('ARG COMMIT=')) return `ARG COMMIT=${commit}`
    if (line.startsWith('COPY ')) {
      const copied = COPIED.get(line)
      if (copied === undefined) throw new Error(`release/image.ts does not know the line ${line}`)
      return copied
    }
    return line
  })
  return [
    '# Build it in this folder: docker buildx build --platform linux/amd64,linux/arm64 --tag <name> .',
    ...lines,
  ].join('\n')
}

/** Line in the clone → line beside the binaries. */
const COPIED = new Map([
  [
    'COPY --from=build /app/dist/tollgate /usr/local/bin/tollgate',
    'COPY --chmod=755 $TARGETARCH/tollgate /usr/local/bin/tollgate',
  ],
  ['COPY --from=build --chown=nonroot:nonroot /app/data /data', 'COPY --chown=nonroot:nonroot data /data'],
])
