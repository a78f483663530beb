/**
 * The life of a server. `starting`: parts of it may still be missing. `draining`: it was told to stop, says so to load
 * balancers, and answers every request. `stopping`: it accepts no more connections.
 */
export const SERVER_STATES = ['starting', 'ready', 'draining', 'stopping'] as const
export type ServerState = (typeof SERVER_STATES)[number]
