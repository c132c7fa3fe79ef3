package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * A request or a response: a JSON object, and byte arrays that it names by their position, as
 * {@code {"attachment": 0}}. On the wire: the length of the JSON text in four bytes, the text, which
 * has the lengths of the attachments under {@code attachments}, and the attachments.
 */
public final class Frame {
  private static final String ATTACHMENTS = "attachments";

  private final ObjectNode head;
  private final List<byte[]> attachments = new ArrayList<>();

  Frame(ObjectNode head) { this.head = head; }

  Frame() { this(Python.JSON.createObjectNode()); }

  public JsonNode head() { return head; }

  Frame with(String name, String value) {
    head.put(name, value);
    return this;
  }

  Frame with(String name, long value) {
    head.put(name, value);
    return this;
  }

  Frame with(String name, JsonNode value) {
    head.set(name, value);
    return this;
  }

  /** Adds an attachment and returns the node that refers to it; JSON's null for null. */
  JsonNode attach(byte[] bytes) {
    if (bytes == null) {
      return Python.JSON.nullNode();
    }
    attachments.add(bytes);
    return Python.JSON.createObjectNode().put("attachment", attachments.size() - 1);
  }

  /** The attachment that a node refers to. */
  public byte[] bytes(JsonNode node) { return attachments.get(node.get("attachment").asInt()); }

  /** The attachments that the nodes of a list refer to. */
  byte[][] allBytes(JsonNode nodes) {
    byte[][] all = new byte[nodes.size()][];
    for (int i = 0; i < all.length; i++) {
      all[i] = bytes(nodes.get(i));
    }
    return all;
  }

  void write(DataOutputStream output) throws IOException {
    head.set(ATTACHMENTS,
        Python.JSON.valueToTree(attachments.stream().map(one -> one.length).toList()));
    byte[] text = Python.JSON.writeValueAsBytes(head);
    output.writeInt(text.length);
    output.write(text);
    for (byte[] one : attachments) {
      output.write(one);
    }
    output.flush();
  }

  /** Returns null at the end of the stream. */
  static Frame read(DataInputStream input) throws IOException {
    int length;
    try {
      length = input.readInt();
    } catch (EOFException end) {
      return null;
    }
    Frame frame = new Frame((ObjectNode) Python.JSON.readTree(input.readNBytes(length)));
    for (JsonNode size : frame.head.get(ATTACHMENTS)) {
      byte[] bytes = new byte[size.asInt()];
      input.readFully(bytes);
      frame.attachments.add(bytes);
    }
    return frame;
  }
}
