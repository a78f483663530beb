import packageJson from '../../package.json' with { type: 'json' }

/** Of this program, as in package.json: `0.1.0`. */
export const VERSION: string = packageJson.version
