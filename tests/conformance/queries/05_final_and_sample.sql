-- FINAL on a ReplacingMergeTree whose versions lie in several parts, SAMPLE on a sampling key.
SELECT count(), sum(Version), sum(Pages) FROM visits FINAL;
SELECT count() > (SELECT count() FROM visits FINAL) AS more FROM visits;
SELECT VisitID, Version, Pages, Note FROM visits FINAL WHERE VisitID < 20 ORDER BY VisitID;
SELECT VisitID, Pages FROM visits FINAL WHERE Pages > 90 ORDER BY VisitID LIMIT 10;
SELECT v.Note, count() FROM visits AS v FINAL WHERE v.VisitID % 2 = 0 GROUP BY v.Note ORDER BY v.Note;
SELECT Note, uniqExact(VisitID) AS u, max(Version) FROM visits FINAL GROUP BY Note HAVING u > 1 ORDER BY Note;
SELECT a.VisitID, b.Pages FROM visits AS a FINAL INNER JOIN visits AS b FINAL ON a.VisitID = b.VisitID WHERE a.VisitID BETWEEN 5 AND 9 ORDER BY a.VisitID;
SELECT count() FROM hits SAMPLE 1/10;
SELECT count(), uniqExact(UserID) FROM hits SAMPLE 0.5 WHERE CounterID < 10;
SELECT count() FROM hits SAMPLE 1/4 OFFSET 1/2;
SELECT h.Device, count() FROM hits AS h SAMPLE 0.2 GROUP BY h.Device ORDER BY h.Device;
SELECT (SELECT count() FROM hits SAMPLE 1/4) + (SELECT count() FROM hits SAMPLE 3/4 OFFSET 1/4) = (SELECT count() FROM hits) AS whole;
