// A front end of the AI SDK without a page: sends messages to the service, answers what it is asked, prints what it would show.
//
//     node ui_client.mjs URL NODE_MODULES '{"say": [...], "approve": true}'
import { pathToFileURL } from "node:url";

const [url, modules, request] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await import(
  pathToFileURL(`${modules}/ai/dist/index.mjs`)
);
const { say, approve = null, id = "chat-1", regenerate = false, messages = [] } = JSON.parse(request);

class State {
  status = "ready";
  error = undefined;
  messages = messages;
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((old, place) => (place === index ? structuredClone(message) : old));
  };
  snapshot = (thing) => structuredClone(thing);
}
class Chat extends AbstractChat {}

const parts = [];
const reading = async (...given) => {
  const response = await fetch(...given);
  const [shown, kept] = response.body.tee();
  parts.push(new Response(kept).text());
  return new Response(shown, { status: response.status, headers: response.headers });
};
const errors = [];
const chat = new Chat({
  id,
  state: new State(),
  transport: new DefaultChatTransport({ api: `${url}/api/v1/ui/chat`, fetch: reading }),
  onError: (error) => errors.push(error.message),
  sendAutomaticallyWhen: approve === null ? undefined : lastAssistantMessageIsCompleteWithApprovalResponses,
});
for (const text of say) {
  await chat.sendMessage(typeof text === "string" ? { text } : text);
  for (const part of chat.lastMessage.parts.filter((one) => one.state === "approval-requested")) {
    if (approve !== null) {
      await chat.addToolApprovalResponse({ id: part.approval.id, approved: approve, reason: "because" });
    }
  }
  while (chat.status !== "ready" && chat.status !== "error") await new Promise((done) => setTimeout(done, 10));
}
if (regenerate) await chat.regenerate();
console.log(JSON.stringify({ messages: chat.messages, errors, status: chat.status, streams: await Promise.all(parts) }));
