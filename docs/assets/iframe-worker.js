// Search runs in a worker, and a browser starts no worker for a page that was opened as a file. There it runs in a hidden
// frame instead. The name of this file tells Material's plugin `offline` to fetch no such script from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) =>
        queueMicrotask(() => this.dispatchEvent(new MessageEvent("message", { data })));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.inside = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.inside) {
        queueMicrotask(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
      } else {
        this.waiting.push(data);
      }
    }

    terminate() {}
  };
}
