// The least that answers JSON with JSON on Bun: no check, no header, no decision.
const server = Bun.serve({
  port: 0,
  fetch: async (request) => {
    const body = (await request.json()) as { limit?: number } // the load sends nothing else
    return Response.json({ success: true, limit: body.limit ?? 1, remaining: 1, reset: 1_800_000_000_000 })
  },
})
console.log(`listens on http://127.0.0.1:${server.port}`)
