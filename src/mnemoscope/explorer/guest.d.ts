/** What a task's own script for the page is: `TaskReport.explorer` returns its source. `make lint-js` checks it. */

/** By position the probability of every token. */
type ExactRows = Map<number, ArrayLike<number>>;

interface ExplorerGuest {
  /** Why the task has no such sequence; null if nothing speaks against it. */
  complaint(tokens: number[]): string | null;
  /** Exact predictors by name, for sequences without a complaint. */
  references: Record<string, (tokens: number[]) => ExactRows>;
}

/** From the task's fields, as far as they are numbers, words or truth values. */
type ExplorerScript<Fields> = (task: Fields) => ExplorerGuest;

/** The value of an ideal part, at all positions, from the tokens and the activations that it reads. */
type IdealPart = (tokens: number[], ...reads: Float32Array[]) => Float32Array;

/** From the task's fields and the sizes of the model the ideal parts by name; `TaskReport.ideal_parts` returns it. */
type IdealScript<Fields> = (task: Fields, sizes: { d_vocab_out: number }) => Record<string, IdealPart>;
