/** The library of views that pages load before their own scripts. */
declare const CircuitsVis: {
  AttentionHeads: unknown;
  render(place: string, view: unknown, properties: object): void;
};
