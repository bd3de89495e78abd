"""JSON documents from any client, formatted within limits (`layout`), and the digits of decoded numbers (`digits`).

Pages show the stored digits of a number and never reformat it. `protocol.exact_json` parses the documents.
"""
