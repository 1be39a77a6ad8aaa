const waiting = [];
const later = (library, draw, ...what) => waiting.push(() => library[draw](...what));
const drawNext = () => { if (waiting.length) { waiting.shift()(); setTimeout(drawNext); } };
const drawAll = () => { while (waiting.length) waiting.shift()(); };
addEventListener("load", drawNext);
addEventListener("beforeprint", drawAll);
