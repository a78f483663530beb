import packageJson from '../../package.json' with { type: 'json' }

/** Version of this program, from package.json: `0.1.0`. */
export const VERSION: string = packageJson.version
