using System.Buffers.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// The text form of `kv export`: after a first line that names the form, a line for each key with the key, the value, and for how many milliseconds the key
/// lives, which is empty if it does not expire. Keys and values are quoted as <see cref="Text.Quoted"/> where a line could not carry them.
/// </summary>
internal static class ExportLine
{
    private const byte Tab = (byte)'\t';

    /// <summary>The first line. It has no tab, so a plain file with it would be refused.</summary>
    public static ReadOnlySpan<byte> Header => "#kvcluster-export-1"u8;

    /// <summary>Prints the first line.</summary>
    public static void PrintHeader(Output output)
    {
        output.Bytes(Header);
        output.Bytes("\n"u8);
    }

    /// <summary>Prints a key.</summary>
    public static void Print(Output output, in KvEntry entry)
    {
        output.Field(entry.Key.Span, isRaw: false);
        output.Bytes("\t"u8);
        output.Field(entry.Value.Span, isRaw: false);
        output.Bytes(Text.ToBytes(entry.Life.Left is { } left ? $"\t{Text.Number((long)Math.Ceiling(left.TotalMilliseconds))}\n" : "\t\n").Span);
    }

    /// <summary>Reads a line behind the first one.</summary>
    /// <exception cref="FormatException">It is none. The message continues a sentence that begins with the line.</exception>
    public static FileRecord Parse(long number, ReadOnlyMemory<byte> line)
    {
        var keyEnd = line.Span.IndexOf(Tab);
        var valueEnd = line.Span.LastIndexOf(Tab);
        if (keyEnd == valueEnd || line.Span[(keyEnd + 1)..valueEnd].Contains(Tab))
            throw new FormatException("does not have the three columns of an export");
        return new FileRecord(number, Unquoted(line[..keyEnd]), Unquoted(line[(keyEnd + 1)..valueEnd])) { Left = LeftOf(line.Span[(valueEnd + 1)..]) };
    }

    private static ReadOnlyMemory<byte> Unquoted(ReadOnlyMemory<byte> field) =>
        Text.TryUnquote(field, out var bytes) ? bytes : throw new FormatException("has a key or a value that is not quoted as an export quotes it");

    private static TimeSpan? LeftOf(ReadOnlySpan<byte> column)
    {
        if (column.IsEmpty)
            return null;
        return Utf8Parser.TryParse(column, out long milliseconds, out var length) && length == column.Length
            ? TimeToLive.OfMilliseconds(milliseconds)
            : throw new FormatException("has a time left that is not a number of milliseconds");
    }
}
