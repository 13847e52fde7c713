// Links in all pages.
import rules from './rules.mjs'

export default {
  config: { default: false, links: true },
  customRules: rules,
  gitignore: true,
  globs: ['**/*.md'],
}
