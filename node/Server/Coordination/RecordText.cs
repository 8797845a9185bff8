using Google.Protobuf;

namespace KvCluster.Node.Coordination;

/// <summary>
/// The format of the coordinator's values: protobuf JSON with the field names of the proto files, readable with etcdctl. Fields added by newer versions are
/// ignored.
/// </summary>
internal static class RecordText
{
    private static readonly JsonFormatter Formatter = new(JsonFormatter.Settings.Default.WithPreserveProtoFieldNames(true));
    private static readonly JsonParser Parser = new(JsonParser.Settings.Default.WithIgnoreUnknownFields(true));

    public static string Format(IMessage record) => Formatter.Format(record);

    /// <exception cref="CoordinatorRecordException">Not a record of this type.</exception>
    public static T Parse<T>(string text)
        where T : IMessage, new()
    {
        try
        {
            return Parser.Parse<T>(text);
        }
        catch (Exception failure) when (failure is IOException or InvalidOperationException)
        {
            throw new CoordinatorRecordException(typeof(T).Name, text, failure);
        }
    }
}
