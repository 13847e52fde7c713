// Links in all pages.
import rules from './rules.mjs'

export default {
  config: { default: false, 'dead-links': true },
  customRules: rules,
  gitignore: true,
  globs: ['**/*.md'],
}
