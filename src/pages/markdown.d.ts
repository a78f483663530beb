/** `import text from './x.md' with { type: 'text' }`: also inside a compiled program. */
declare module '*.md' {
  const text: string
  export default text
}
