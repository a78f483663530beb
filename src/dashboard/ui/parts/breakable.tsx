import { Fragment } from 'preact'

/** A name such as `authorization.connect_role_and_key`, which breaks between its words where it must. */
export const Breakable = ({ text }: { text: string }) => (
  <>
    {text.split(/(?<=[._])/).map((word, at) => (
      <Fragment key={at}>
        {word}
        <wbr />
      </Fragment>
    ))}
  </>
)
